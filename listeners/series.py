"""Turn stored batches and rollups into chart columns, few enough for a page to draw."""

from datetime import datetime
from typing import Any

from listeners import models
from listeners.rollups import PHASES, WIDTHS_S, watermark_delay_s

#: Maximum raw rows read for a chart; beyond that, rollups are drawn instead.
RAW_LIMIT = 20_000
#: Maximum buckets read for a chart before a coarser width is used.
BUCKET_LIMIT = 5_000
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
_RAW = (
    *("pk", "at", "batch", "run", "watermark"),
    *(name for name in _PLAIN if name != "watermark_delay_s"),
)
_BUCKET = ("start", "batches", *_PLAIN.values(), *PHASES.values())

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
        rows += map(_raw_row, inside.order_by("at").values(*_RAW))
    return _columns(_with_breaks(_with_phases(_downsample(rows, points))))


def _raw_row(row: Row) -> Row:
    at = row["at"]
    row["watermark_delay_s"] = watermark_delay_s(at, row.pop("watermark"))
    row["at"] = at.timestamp()
    return row


def _with_phases(rows: list[Row]) -> list[Row]:
    """Add the phases of raw rows: their JSON is read only for the rows that are drawn."""
    drawn = {row.pop("pk"): row for row in rows if "pk" in row}
    ids = sorted(drawn)
    for first in range(0, len(ids), 500):
        some = models.Progress.objects.filter(pk__in=ids[first : first + 500])
        for pk, phases in some.values_list("pk", "body__durationMs"):
            durations = phases.items() if isinstance(phases, dict) else ()
            drawn[pk] |= {f"phase_{name}": value for name, value in durations if name in PHASES}
    return rows


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
        if rows := [
            _bucket_row(*bucket) for bucket in buckets.order_by("start").values_list(*_BUCKET)
        ]:
            return rows
    return []


def _bucket_row(start: datetime, batches: int, *figures: Any) -> Row:
    phases = zip(PHASES, figures[len(_PLAIN) :], strict=True)
    return {
        "at": start.timestamp(),
        "batch": None,
        "run": None,
        **dict(zip(_PLAIN, figures, strict=False)),
        **{f"phase_{name}": ms / batches for name, ms in phases if ms is not None},
    }


def _downsample(rows: list[Row], points: int) -> list[Row]:
    """Keep about `points` rows: those that shape the main columns, including peaks."""
    if len(rows) <= points:
        return rows
    import numpy as np  # for charts only; roll-ups and retention need just the widths
    from tsdownsample import MinMaxLTTBDownsampler

    sampler: Any = MinMaxLTTBDownsampler()  # type: ignore[no-untyped-call]
    points_per_column = max(4, points // len(_SHAPE))
    at = np.array([row["at"] for row in rows], dtype=np.float64)
    keep: set[int] = {0, len(rows) - 1}
    for name in _SHAPE:
        values = np.array([row[name] or 0 for row in rows], dtype=np.float64)
        keep.update(sampler.downsample(at, values, n_out=points_per_column).tolist())
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
    present = [f"phase_{name}" for name in PHASES if any(f"phase_{name}" in row for row in rows)]
    names = (*_PLAIN, *present)
    return (
        [row["at"] for row in rows],
        {name: [row.get(name) for row in rows] for name in names},
        [row["batch"] for row in rows],
    )
