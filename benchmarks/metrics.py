"""Compare a scrape of `/metrics` with 10,000 queries, 1,000 of them running, and with 100 and 10.

Both databases are filled like those of `benchmarks.pages`; in addition, each running query has a
lag in four partitions, failures and losses. The requests are the same as Prometheus's, with gzip,
through all middleware.

- ours: the scrape with 10,000 queries (`--queries`), which must take at most 1 s;
- baseline: the same with 100.

Figures are reported only if each scrape contains all series of every running query, at most 30
each. The two sizes take turns in each round. The last line is JSON.
"""

import argparse
import gzip
import re
import statistics
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks._measuring import report, spread, workplace
from benchmarks.pages import FEW, MANY, NOW, Server, answers, configure, fill, signed_in

TAKES = "2 minutes"

MOST_SERIES = 30
PARTITIONS = 4


def main() -> None:
    """Fill two databases, then measure them in turn."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queries", type=int, default=MANY)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)  # a folder, how many queries
    chosen = options.parse_args()
    if chosen.serve:
        _serve(Path(chosen.serve[0]), int(chosen.serve[1]))
        return
    with workplace("metrics") as folder:
        few = Server("benchmarks.metrics", folder / "few", FEW)
        many = Server("benchmarks.metrics", folder / "many", chosen.queries)
        try:
            _run(few, many, rounds=chosen.rounds)
        finally:
            few.end()
            many.end()


def _run(few: Server, many: Server, *, rounds: int) -> None:
    taken: dict[Server, list[float]] = {few: [], many: []}
    size = 0.0
    for server in taken:
        _check(server, server.ask("/metrics"))
    for number in range(rounds):
        for server in (few, many) if number % 2 else (many, few):
            answer = server.ask("/metrics")
            _check(server, answer)
            taken[server].append(1000 * answer["seconds"])
            if server is many:
                size = answer["packed_kb"]
    for server, found in taken.items():
        print(f"{server.queries:,} queries: {spread(found)} ms")
    ours, base = (statistics.median(taken[server]) for server in (many, few))
    print(f"{size:.0f} KB as sent")
    report("metrics", ours=round(ours), baseline=round(base, 1), ratio=round(ours / base, 2))


def _check(server: Server, answer: dict[str, Any]) -> None:
    """Check that each running query has its series."""
    running = server.queries // 10
    if answer["status"] != 200:
        raise SystemExit(f"/metrics responded with {answer['status']}")
    if answer["queries"] != running:
        raise SystemExit(f"{answer['queries']} queries have series, {running} are running")
    if not 20 <= answer["least"] <= answer["most"] <= MOST_SERIES:
        raise SystemExit(f"a query has {answer['least']} to {answer['most']} series")


# --- a server -----------------------------------------------------------------------------
def _serve(folder: Path, queries: int) -> None:
    configure(folder)
    fill(queries)
    _fill_more()
    client = signed_in()

    def scrape(address: str) -> dict[str, Any]:
        began = time.perf_counter()
        answer = client.get(address, headers={"accept-encoding": "gzip"})
        seconds = time.perf_counter() - began
        packed = answer.headers.get("Content-Encoding") == "gzip"
        text = (gzip.decompress(answer.content) if packed else answer.content).decode()
        series = Counter(re.findall(r'^headgate_query_\w+\{.*?\bquery="([^"]+)"', text, re.M))
        return {
            "seconds": seconds,
            "status": answer.status_code,
            "packed_kb": len(answer.content) / 1024,
            "queries": len(series),
            "least": min(series.values(), default=0),
            "most": max(series.values(), default=0),
        }

    answers(sys.stdin, scrape)


def _fill_more() -> None:
    """Give each running query optional data: a lag, failures, losses, state, a watermark."""
    from django.db import transaction

    from listeners.models import Latest
    from queries.domain.states import LossKind, Phase
    from queries.models.checkpoints import Loss, SourceLag
    from queries.models.definitions import Query
    from queries.models.history import FailureGroup

    running = list(Query.objects.filter(phase=Phase.RUNNING))
    with transaction.atomic():
        SourceLag.objects.bulk_create(
            SourceLag(
                query=query,
                source="topic",
                partition=partition,
                committed=10,
                latest=1_000,
                earliest=0,
                record_at=NOW - timedelta(seconds=40),
                seen_at=NOW,
            )
            for query in running
            for partition in range(PARTITIONS)
        )
        FailureGroup.objects.bulk_create(
            FailureGroup(
                query=query,
                application_id=query.application_id,
                fingerprint=str(query.pk),
                title="Connection refused",
                count=3,
                first_seen=NOW,
                last_seen=NOW,
            )
            for query in running
        )
        Loss.objects.bulk_create(
            Loss(query=query, kind=LossKind.LATE, source="s", records=5, day=NOW, noticed_at=NOW)
            for query in running
        )
        operators = [{"numRowsTotal": 50, "memoryUsedBytes": 5_000, "operatorName": "dedupe"}]
        for line in Latest.objects.all():
            line.progress = (line.progress or {}) | {
                "stateOperators": operators,
                "eventTime": {"watermark": NOW.isoformat()},
            }
            line.progress_at = NOW
            line.save()


if __name__ == "__main__":
    main()
