"""Compare applying 1,000 manifests at once with creating the same queries one by one over REST.

A database contains 2,000 queries, of which 200 are running. Meanwhile, another process writes every
100 ms, as a reconcile does: its longest wait shows how late a reconcile would be. Each round uses a
fresh database:

- ours: `POST apply/` with 1,000 new queries; then with the same set; then with one query changed;
- baseline: `POST queries/`, 1,000 times, with the same definitions.

Figures are reported only if both leave the same definitions, the second apply finds no changes, and
the third finds the changed field. The longest hold of the write lock is measured on the connection
itself, from the end of BEGIN to the end of COMMIT. The last line is JSON: the ratio compares the
times for the new queries.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import backlog, pages
from benchmarks._measuring import ratios, report, spread, workplace

TAKES = "6 minutes"

THERE, NEW = 2_000, 1_000

Found = dict[str, float]


def main() -> None:
    """Fill a database once, run the rounds on copies of it, and print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queries", type=int, default=NEW)
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    with workplace("apply") as folder:
        pages.configure(folder)
        pages.fill(THERE)
        client = pages.signed_in()
        client.raise_request_exception = True
        _keep()
        _run(folder, client, count=chosen.queries, rounds=chosen.rounds)


def _keep() -> None:
    """Store the filled database, which `backlog._fresh_database` copies."""
    from django.db import connection

    connection.close()
    file = backlog._database_file()
    file.rename(file.with_suffix(".full"))


def _run(folder: Path, client: Any, *, count: int, rounds: int) -> None:
    arms: dict[str, Callable[[Any, int], Found]] = {"ours": _ours, "one_by_one": _one_by_one}
    told: dict[str, list[Found]] = {name: [] for name in arms}
    for number in range(rounds):
        left = {}
        for name in list(arms) if number % 2 == 0 else reversed(list(arms)):
            with backlog._fresh_database(), backlog._beside(folder) as waits:
                with backlog._holds() as holds:
                    found = arms[name](client, count)
                left[name] = _definitions()
            waited = sorted(waits)
            found["hold_ms"] = max(whole for _, whole in holds) * 1000
            found["reconcile_p95_ms"] = waited[int(len(waited) * 0.95)] * 1000
            found["reconcile_longest_ms"] = waited[-1] * 1000
            told[name].append(found)
            figures = ", ".join(f"{what} {value:,.2f}" for what, value in found.items())
            print(f"round {number + 1}, {name}: {figures}", flush=True)
        if left["ours"] != left["one_by_one"]:
            raise SystemExit("the arms left different definitions")
    for name, found_ones in told.items():
        for what in found_ones[0]:
            print(f"{name}: {what} {spread((one[what] for one in found_ones), ',.2f')}")
    middle = {
        name: {what: round(statistics.median(one[what] for one in ones), 2) for what in ones[0]}
        for name, ones in told.items()
    }
    quicker = ratios(
        [one["new_s"] for one in told["one_by_one"]], [one["new_s"] for one in told["ours"]]
    )
    report(
        "apply",
        ours=middle["ours"],
        baseline=middle["one_by_one"],
        ratio=round(statistics.median(quicker), 1),
    )


def _manifests(count: int, *, interval: str = "5 seconds") -> list[dict[str, Any]]:
    files = []
    for number in range(count):
        spec = pages._spec() | {"sql": f"SELECT value, {number} AS part FROM ticks"}
        files.append(
            {
                "path": f"queries/new-{number:04}.yaml",
                "manifest": {
                    "apiVersion": "headgate/v1",
                    "kind": "Query",
                    "metadata": {"name": f"new-{number:04}"},
                    "spec": spec,
                },
            }
        )
    last: Any = files[-1]["manifest"]
    last["spec"]["trigger"] = {"kind": "processing_time", "interval": interval}
    return files


def _apply(client: Any, files: list[dict[str, Any]]) -> tuple[float, dict[str, int], Any]:
    """Return the duration of an apply in seconds, its outcomes, and its objects."""
    began = time.perf_counter()
    answer = client.post(
        "/api/v1/apply/",
        {"owner": "bench", "source": {"commit": "a" * 40}, "manifests": files},
        content_type="application/json",
    )
    took = time.perf_counter() - began
    objects = answer.json().get("objects", [])
    outcomes = [one["outcome"] for one in objects]
    if answer.status_code != 200:
        raise SystemExit(f"apply answered {answer.status_code}: {answer.content[:500]!r}")
    return took, {one: outcomes.count(one) for one in set(outcomes)}, objects


def _ours(client: Any, count: int) -> Found:
    files = _manifests(count)
    new_s, outcomes, _ = _apply(client, files)
    if outcomes != {"created": count}:
        raise SystemExit(f"the new queries are {outcomes}")
    same_s, outcomes, _ = _apply(client, files)
    if outcomes != {"unchanged": count}:
        raise SystemExit(f"the same queries are {outcomes}")
    one_s, outcomes, objects = _apply(client, _manifests(count, interval="10 seconds"))
    fields = [change["field"] for one in objects for change in one["changes"]]
    if outcomes != {"unchanged": count - 1, "changed": 1} or fields != ["spec.trigger.interval"]:
        raise SystemExit(f"one is changed, and found are {outcomes}, {fields}")
    _apply(client, files)  # back to what the other arm has
    return {"new_s": new_s, "same_s": same_s, "one_changed_s": one_s}


def _one_by_one(client: Any, count: int) -> Found:
    began = time.perf_counter()
    for file in _manifests(count):
        manifest = file["manifest"]
        answer = client.post(
            "/api/v1/queries/",
            {"name": manifest["metadata"]["name"], "spec": manifest["spec"]},
            content_type="application/json",
        )
        if answer.status_code != 201:
            raise SystemExit(f"a create answered {answer.status_code}: {answer.content[:500]!r}")
    return {"new_s": time.perf_counter() - began}


def _definitions() -> list[tuple[Any, ...]]:
    """Return the new queries with their newest definition, application and checkpoint."""
    from queries.models.definitions import Query

    rows = Query.objects.filter(name__startswith="new-", archived_at=None)
    return [
        (
            row.name,
            row.application.name,
            row.application.revisions.get().spec,
            row.checkpoints.get().location,
            row.revisions.order_by("-number")[0].spec,
        )
        for row in rows.select_related("application").order_by("name")
    ]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    main()
