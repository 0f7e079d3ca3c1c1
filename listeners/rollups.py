"""Sum progress up into buckets of 10 s, 1 min and 1 h: what long charts are drawn from.

Driven by what has newly arrived, not by the clock: a batch that comes late only makes its
own buckets be computed again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from listeners import models
from listeners.series import WIDTHS_S, watermark_delay_s

_CURSOR = "rollups"
_KEY = ("query", "width_s", "start")
_EXTREMES = ("input_rate_max", "processed_rate_max", "state_rows_max", "watermark_delay_s_max")
_ROWS_AT_ONCE = 20_000  # new rows of one call; the next call goes on
#: Buckets further apart than this are read by queries of their own.
_APART = timedelta(minutes=5)

Bucket = tuple[int, datetime]  # query, start


def roll_up() -> int:
    """Sum up the progress rows that came since the last call; return how many there were."""
    cursor, _ = models.Cursor.objects.get_or_create(name=_CURSOR)
    new = list(
        models.Progress.objects.filter(pk__gt=cursor.position)
        .order_by("pk")
        .values_list("pk", "query", "at")[:_ROWS_AT_ONCE]
    )
    if not new:
        return 0
    fine, middle, coarse = WIDTHS_S
    touched = {(query, floor(at, fine)) for _, query, at in new}
    with transaction.atomic():
        rows = models.Progress.objects.all()
        models.upsert(models.Rollup, _summed(rows, "at", touched, fine, _rollup_of), *_KEY)
        for narrow, wide in ((fine, middle), (middle, coarse)):
            touched = {(query, floor(start, wide)) for query, start in touched}
            parts = models.Rollup.objects.filter(width_s=narrow)
            sums = _summed(parts, "start", touched, wide, lambda part: part)
            models.upsert(models.Rollup, sums, *_KEY)
        models.Cursor.advance(_CURSOR, new[-1][0])
    return len(new)


def floor(at: datetime, width_s: int) -> datetime:
    """Return the start of the bucket that holds an instant."""
    return datetime.fromtimestamp(at.timestamp() // width_s * width_s, UTC)


def spans(starts: Iterable[datetime], width_s: int) -> list[tuple[datetime, datetime]]:
    """Return the fewest spans [since, until) that hold these buckets and leave out long pauses."""
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
    """Return the touched buckets, summed up from rows whose time is in the column `at`."""
    buckets: dict[Bucket, models.Rollup] = {}
    for query, since, until in _reads(touched, width_s):
        found = rows.filter(**{"query": query, f"{at}__gte": since, f"{at}__lt": until})
        for row in found.iterator():
            key = (query, floor(getattr(row, at), width_s))
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
    phases: dict[str, Any] = row.body.get("durationMs") or {}
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
        phases_ms_sum=phases,
    )


def _add(bucket: models.Rollup, part: models.Rollup) -> None:
    """Add one part to a bucket: sums add up, extremes stay extremes."""
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
