"""How long do charts of a day, a week and 90 days of one query take, from roll-ups and from rows?

A query of a million batches in the last 24 hours, and of one batch a minute in the 89 days before,
of which only roll-ups exist, as after retention. Timed: `listeners.selectors.series`, which the
pages and the REST API call, with its JSON. The baseline sums the same day by minute from the raw
rows, in the database. The buckets must first equal the baseline's sums. The last line is JSON.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks._measuring import ratios, report, spread, workplace

TAKES = "3 minutes"

QUERY = 1
NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SPANS = {"day": DAY, "week": 7 * DAY, "quarter": 90 * DAY}
#: Promised, in milliseconds.
GOALS = {"day": 100, "week": 200, "quarter": 300}


def main() -> None:
    """Fill the database, check it, then run the rounds."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batches", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--postgres", action="store_true")
    chosen = options.parse_args()
    with workplace("history") as folder, ExitStack() as opened:
        url = None
        if chosen.postgres:
            from tests import pieces

            url = opened.enter_context(pieces.postgres_server())
        _configure(folder, url)
        _fill(chosen.batches)
        _run(max(5, chosen.rounds), chosen.batches, "postgresql" if url else "sqlite")


def _configure(folder: Path, url: str | None) -> None:
    os.environ.update(
        DJANGO_SETTINGS_MODULE="controlplane.settings", HEADGATE_HOME=str(folder / "home")
    )
    os.environ.pop("DATABASE_URL", None)
    if url:
        os.environ["DATABASE_URL"] = url
    (folder / "home").mkdir()
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def _fill(batches: int) -> None:
    """Store the day's rows with their buckets, and the buckets alone of the days before."""
    from django.db import connection, transaction

    from listeners import models, rollups

    every = DAY / batches
    day = ((number, NOW - DAY + number * every) for number in range(batches))
    minutes = 89 * 24 * 60
    before = ((number, NOW - 90 * DAY + timedelta(minutes=number)) for number in range(minutes))
    names = "driver epoch seq query run spark_run_id batch at received_at repaired num_input_rows"
    columns = (*names.split(), "batch_duration_ms", "body")
    statement = (
        f'INSERT INTO "{models.Progress._meta.db_table}" ({", ".join(columns)}) '
        f"VALUES ({', '.join(['%s'] * len(columns))})"
    )
    stamp = connection.ops.adapt_datetimefield_value
    for moments, has_rows in ((day, True), (before, False)):
        while some := list(islice(moments, 20_000)):
            with transaction.atomic(), connection.cursor() as cursor:
                if has_rows:
                    cursor.executemany(statement, list(_rows(some, stamp)))
                rollups.add([_part(number, at) for number, at in some])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _took_ms(number: int) -> int:
    return 40 + number * 7_919 % 60


def _rows(some: list[tuple[int, datetime]], stamp: Callable[[Any], Any]) -> Iterator[Any]:
    for number, at in some:
        body = json.dumps({"batchId": number, "durationMs": {"addBatch": 30, "walCommit": 5}})
        told = (1, 1, number + 1, QUERY, 1, "run", number, stamp(at), stamp(at), False)
        yield (*told, number % 1_000, _took_ms(number), body)


def _part(number: int, at: datetime) -> Any:
    from listeners import rollups

    return rollups.part_of(
        QUERY,
        at,
        rows=number % 1_000,
        took_ms=_took_ms(number),
        input_rate=None,
        processed_rate=None,
        state_rows=None,
        watermark=None,
        phases={"addBatch": 30, "walCommit": 5},
    )


def _ours(span: timedelta) -> Any:
    from listeners.selectors import series

    found = series(QUERY, since=NOW - span, until=NOW)
    return json.dumps([found.at, found.columns, found.batches])


def _from_rows() -> list[Any]:
    """Return the day's minutes summed from its rows: (batches, rows, longest), in order."""
    from django.db import connection

    from listeners.models import Progress

    # Django's TruncMinute calls Python for each row on SQLite, which would be no fair baseline.
    minute = "substr(at, 1, 16)" if connection.vendor == "sqlite" else "date_trunc('minute', at)"
    stamp = connection.ops.adapt_datetimefield_value
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT COUNT(*), SUM(num_input_rows), MAX(batch_duration_ms), {minute} AS start "
            f'FROM "{Progress._meta.db_table}" WHERE query = %s AND at >= %s AND at < %s '
            "GROUP BY start ORDER BY start",
            [QUERY, stamp(NOW - DAY), stamp(NOW)],
        )
        return [(batches, int(rows), longest) for batches, rows, longest, _ in cursor.fetchall()]


def _check(batches: int) -> None:
    from listeners.models import Rollup

    buckets = Rollup.objects.filter(query=QUERY, width_s=60, start__gte=NOW - DAY).order_by("start")
    kept = list(buckets.values_list("batches", "rows", "duration_ms_max"))
    if kept != _from_rows() or sum(one[0] for one in kept) != batches:
        raise SystemExit("the roll-ups do not equal the rows")
    if len(json.loads(_ours(DAY))[0]) < 100:
        raise SystemExit("the chart of a day is empty")
    print(f"{batches:,} batches: the roll-ups equal the sums of the rows")


def _run(rounds: int, batches: int, database: str) -> None:
    _check(batches)
    arms: dict[str, Callable[[], Any]] = {
        **{name: partial(_ours, span) for name, span in SPANS.items()},
        "rows": _from_rows,
    }
    took: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds):
        for name in [*arms][:: 1 if number % 2 else -1]:
            began = time.perf_counter()
            arms[name]()
            took[name].append((time.perf_counter() - began) * 1000)
    for name, found in took.items():
        goal = f", promised {GOALS[name]}" if name in GOALS else ""
        print(f"{name}: {spread(found)} ms{goal}")
    middle = {name: round(statistics.median(found), 1) for name, found in took.items()}
    report(
        "history",
        ours=middle["day"],
        baseline=middle["rows"],
        ratio=round(statistics.median(ratios(took["rows"], took["day"])), 1),
        day_ms=middle["day"],
        week_ms=middle["week"],
        quarter_ms=middle["quarter"],
        batches=batches,
        database=database,
    )


if __name__ == "__main__":
    main()
