"""Sum progress into buckets of 10 s, 1 min and 1 h, for charts of long periods.

Newly arrived rows trigger the summing, not the clock, so a late batch causes only its own buckets
to be recomputed. A bucket is always summed as a whole, so it can be written in any slice, and
written again after a worker has died between two slices.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from headgate_ground.tolerant.values import start_of
from listeners import models
from listeners.loops.backlogs import ROLLUPS, rows_left
from listeners.loops.slices import BulkRun, bulk_work
from listeners.loops.troubles import set_aside
from listeners.series import WIDTHS_S, watermark_delay_s

logger = logging.getLogger(__name__)

_KEY = ("query", "width_s", "start")
_EXTREMES = ("input_rate_max", "processed_rate_max", "state_rows_max", "watermark_delay_s_max")
_ROWS_AT_ONCE = 1_000  # new rows whose buckets are summed together
LIMIT_S = 5.0  # per call; with ticks every 10 s, that leaves the worker's thread to others
#: Buckets further apart than this are read by separate queries.
_APART = timedelta(minutes=5)

Bucket = tuple[int, datetime]  # query, start


def roll_up(*, limit_s: float = LIMIT_S) -> int:
    """Sum the progress rows since the last call; return how many there were.

    Reads outside of transactions and writes in slices, for at most `limit_s`; the next call
    continues.
    """
    count = 0
    with bulk_work(ROLLUPS, limit_s=limit_s) as work:
        while work is not None and work.has_time:
            new = _new_rows()
            if not new:
                break
            _sum_up(work, new)
            count += len(new)
        if work is not None:
            work.left(*rows_left(ROLLUPS))
    return count


def _new_rows() -> list[tuple[int, int, datetime]]:
    cursor = models.Cursor.objects.get(name=ROLLUPS)
    rows = models.Progress.objects.filter(pk__gt=cursor.position).order_by("pk")
    return list(rows.values_list("pk", "query", "at")[:_ROWS_AT_ONCE])


def _sum_up(work: BulkRun, new: list[tuple[int, int, datetime]]) -> None:
    """Write all buckets of the new rows; a partial step would have to be repeated as a whole."""
    fine, middle, coarse = WIDTHS_S
    touched = {(query, start_of(at, fine)) for _, query, at in new}
    sums = _summed(models.Progress.objects.all(), "at", touched, fine, _rollup_of)
    _keep(work, sums)
    for narrow, wide in ((fine, middle), (middle, coarse)):
        touched = {(query, start_of(start, wide)) for query, start in touched}
        parts = models.Rollup.objects.filter(width_s=narrow)
        _keep(work, _summed(parts, "start", touched, wide, lambda part: part))
    with work.slice():
        models.Cursor.advance(ROLLUPS, new[-1][0])


def _keep(work: BulkRun, buckets: Iterable[models.Rollup]) -> None:
    def write(some: Sequence[tuple[Any, ...]]) -> None:
        with connection.cursor() as cursor:
            cursor.executemany(_UPSERT, some)

    def refused(values: tuple[Any, ...], error: Exception) -> None:
        query, width_s, start, *_ = values
        set_aside(ROLLUPS, f"{width_s} s from {start!s:.19} of query {query}", error, log=logger)

    rows = [tuple(_stored(bucket, name) for name in _COLUMNS) for bucket in buckets]
    work.write(rows, write, refused, whole=True)


# Plain SQL is used because building a statement from model objects takes several times as long as
# the database needs to execute it, and would happen while the lock is held.
_COLUMNS = _KEY + tuple(
    one.name
    for one in models.Rollup._meta.concrete_fields
    if not one.primary_key and one.name not in _KEY
)


def _upsert_statement() -> str:
    names = [f'"{name}"' for name in _COLUMNS]
    key = names[: len(_KEY)]
    changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    return (
        f'INSERT INTO "{models.Rollup._meta.db_table}" ({", ".join(names)}) '
        f"VALUES ({', '.join(['%s'] * len(names))}) "
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
    )


_UPSERT = _upsert_statement()


def _stored(bucket: models.Rollup, name: str) -> Any:
    """Return a column's value in the form that the database's driver expects."""
    value = getattr(bucket, name)
    if name == "start":
        return connection.ops.adapt_datetimefield_value(value)
    return json.dumps(value) if name == "phases_ms_sum" else value


def spans(starts: Iterable[datetime], width_s: int) -> list[tuple[datetime, datetime]]:
    """Return the fewest spans [since, until) that contain these buckets and skip long pauses."""
    ordered = sorted(starts)
    breaks = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(ordered)) if b - a > _APART)]
    pieces = [ordered[a:b] for a, b in pairwise([*breaks, len(ordered)])]
    return [(piece[0], piece[-1] + timedelta(seconds=width_s)) for piece in pieces if piece]


def _summed(
    rows: "QuerySet[Any]",
    at: str,
    touched: set[Bucket],
    width_s: int,
    part_of: Callable[[Any], models.Rollup],
) -> Iterable[models.Rollup]:
    """Return the affected buckets, summed from rows whose time is in the `at` column."""
    buckets: dict[Bucket, models.Rollup] = {}
    for query, since, until in _reads(touched, width_s):
        found = rows.filter(**{"query": query, f"{at}__gte": since, f"{at}__lt": until})
        for row in found.iterator():
            key = (query, start_of(getattr(row, at), width_s))
            if key not in touched:
                continue
            if key not in buckets:
                buckets[key] = models.Rollup(
                    query=query, width_s=width_s, start=key[1], batches=0, rows=0, duration_ms_sum=0
                )
            _add(buckets[key], part_of(row))
    return buckets.values()


def _reads(touched: set[Bucket], width_s: int) -> Iterable[tuple[int, datetime, datetime]]:
    by_query = defaultdict(list)
    for query, start in touched:
        by_query[query].append(start)
    for query, starts in by_query.items():
        for since, until in spans(starts, width_s):
            yield query, since, until


def _rollup_of(row: models.Progress) -> models.Rollup:
    told = row.body.get("durationMs") if isinstance(row.body, dict) else None
    phases = told if isinstance(told, dict) else {}
    return models.Rollup(
        batches=1,
        rows=row.num_input_rows,
        duration_ms_min=row.batch_duration_ms,
        duration_ms_max=row.batch_duration_ms,
        duration_ms_sum=row.batch_duration_ms,
        input_rate_max=row.input_rows_per_second,
        processed_rate_max=row.processed_rows_per_second,
        state_rows_max=row.state_rows,
        watermark_delay_s_max=watermark_delay_s(row.at, row.watermark),
        phases_ms_sum={name: ms for name, ms in phases.items() if isinstance(ms, int | float)},
    )


def _add(bucket: models.Rollup, part: models.Rollup) -> None:
    """Add one part to a bucket: sums are added, extremes are kept."""
    lowest = bucket.duration_ms_min if bucket.batches else part.duration_ms_min
    highest = bucket.duration_ms_max if bucket.batches else part.duration_ms_max
    bucket.duration_ms_min = min(lowest, part.duration_ms_min)
    bucket.duration_ms_max = max(highest, part.duration_ms_max)
    bucket.batches += part.batches
    bucket.rows += part.rows
    bucket.duration_ms_sum += part.duration_ms_sum
    for name in _EXTREMES:
        known = [value for row in (bucket, part) if (value := getattr(row, name)) is not None]
        setattr(bucket, name, max(known, default=None))
    for phase, value in part.phases_ms_sum.items():
        bucket.phases_ms_sum[phase] = bucket.phases_ms_sum.get(phase, 0) + value
