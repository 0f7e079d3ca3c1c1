"""Turn stored batches and rollups into chart columns, few enough for a page to draw."""

from datetime import datetime
from typing import Any

from listeners import models

#: Maximum raw rows read for a chart; beyond that, rollups are drawn instead.
RAW_LIMIT = 20_000
#: Maximum buckets read for a chart before a coarser width is used.
BUCKET_LIMIT = 5_000
WIDTHS_S = (10, 60, 3600)
#: The columns whose shape decides which rows a long chart keeps.
_SHAPE = ("batch_duration_ms", "processed_rows_per_second", "num_input_rows")
#: Columns of every row: progress name -> rollup name.
_PLAIN = {
    "input_rows_per_second": "input_rate_max",
    "processed_rows_per_second": "processed_rate_max",
    "num_input_rows": "rows",
    "batch_duration_ms": "duration_ms_max",
    "state_rows": "state_rows_max",
    "watermark_delay_s": "watermark_delay_s_max",
}
_PHASES = ("addBatch", "getBatch", "latestOffset", "queryPlanning", "walCommit", "commitOffsets")

Columns = tuple[list[float], dict[str, list[float | None]], list[int | None]]
Row = dict[str, Any]  # "at" (seconds), "batch", "run" and columns by name


def columns(query_id: int, *, since: datetime, until: datetime, points: int) -> Columns:
    """Return (at, columns, batches) of a query between two times."""
    raw = models.Progress.objects.filter(query=query_id)
    inside = raw.filter(at__gte=since, at__lt=until)
    if inside[: RAW_LIMIT + 1].count() > RAW_LIMIT:
        rows = _rollup_rows(query_id, since, until)
    else:
        oldest = raw.order_by("at").values_list("at", flat=True).first()
        rows = _rollup_rows(query_id, since, min(until, oldest or until))
        rows += [_raw_row(row) for row in inside.order_by("at")]
    return _columns(_with_breaks(_downsample(rows, points)))


def watermark_delay_s(at: datetime, watermark: datetime | None) -> float | None:
    """Return the watermark's delay behind the trigger's start; None if there is no watermark yet.

    Spark reports 1970 until the first batch with data sets the watermark.
    """
    if watermark is None or watermark.timestamp() <= 0:
        return None
    return (at - watermark).total_seconds()


def _raw_row(row: models.Progress) -> Row:
    phases = row.body.get("durationMs") or {}
    return {
        "at": row.at.timestamp(),
        "batch": row.batch,
        "run": row.run,
        **{name: getattr(row, name) for name in _PLAIN if name != "watermark_delay_s"},
        "watermark_delay_s": watermark_delay_s(row.at, row.watermark),
        **{f"phase_{name}": value for name, value in phases.items() if name in _PHASES},
    }


def _rollup_rows(query_id: int, since: datetime, until: datetime) -> list[Row]:
    span_s = (until - since).total_seconds()
    if span_s <= 0:
        return []
    for width in WIDTHS_S:  # the finest that is small enough and not expired
        if span_s / width > BUCKET_LIMIT and width != WIDTHS_S[-1]:
            continue
        buckets = models.Rollup.objects.filter(
            query=query_id, width_s=width, start__gte=since, start__lt=until
        )
        if rows := [_bucket_row(bucket) for bucket in buckets.order_by("start")]:
            return rows
    return []


def _bucket_row(bucket: models.Rollup) -> Row:
    return {
        "at": bucket.start.timestamp(),
        "batch": None,
        "run": None,
        **{name: getattr(bucket, figure) for name, figure in _PLAIN.items()},
        **{
            f"phase_{name}": value / bucket.batches
            for name, value in bucket.phases_ms_sum.items()
            if name in _PHASES
        },
    }


def _downsample(rows: list[Row], points: int) -> list[Row]:
    """Keep about `points` rows: those that shape the main columns, including peaks."""
    if len(rows) <= points:
        return rows
    import numpy as np  # for charts only; roll-ups and retention need just the widths
    from tsdownsample import MinMaxLTTBDownsampler

    sampler: Any = MinMaxLTTBDownsampler()  # type: ignore[no-untyped-call]
    each = max(4, points // len(_SHAPE))
    at = np.array([row["at"] for row in rows], dtype=np.float64)
    keep: set[int] = {0, len(rows) - 1}
    for name in _SHAPE:
        values = np.array([row[name] or 0 for row in rows], dtype=np.float64)
        keep.update(sampler.downsample(at, values, n_out=each).tolist())
    return [rows[index] for index in sorted(keep)]


def _with_breaks(rows: list[Row]) -> list[Row]:
    broken: list[Row] = []
    for row in rows:
        before = broken[-1] if broken else row
        if None not in (row["run"], before["run"]) and row["run"] != before["run"]:
            middle = (before["at"] + row["at"]) / 2
            broken.append({"at": middle, "batch": None, "run": row["run"]})
        broken.append(row)
    return broken


def _columns(rows: list[Row]) -> Columns:
    present = [f"phase_{name}" for name in _PHASES if any(f"phase_{name}" in row for row in rows)]
    names = (*_PLAIN, *present)
    return (
        [row["at"] for row in rows],
        {name: [row.get(name) for row in rows] for name in names},
        [row["batch"] for row in rows],
    )
