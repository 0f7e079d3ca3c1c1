"""The samples of one query: which of the catalogue's metrics it has, and their values."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from typing import Any

from queries.domain.kafka.losses import late_rows
from queries.domain.metrics import catalogue
from queries.domain.metrics.catalogue import Metric


@dataclass(frozen=True, slots=True)
class Sample:
    """One series' value; labels in the order of the metric's, `extra` after them."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """What is known of a query; None or "" where something is not known, or does not apply."""

    name: str
    application: str
    labels: Mapping[str, str]
    wanted: bool
    phase: str
    phase_since: datetime | None
    verdict: str  # "": not judged
    verdict_since: datetime | None
    starts: int
    failures: int
    failures_in_a_row: int
    event_at: datetime | None = None
    batch_at: datetime | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)  # Spark's JSON of the newest batch
    lag_seconds: float | None = None
    lag_offsets: int | None = None
    risk_at: datetime | None = None
    source_reachable: bool | None = None
    dropped: int | None = None  # None: it has had no driver yet
    missing: int | None = None
    lost: Mapping[str, int] = field(default_factory=dict)  # kind of loss -> records


def samples_of(figures: QueryFigures, *, now: datetime) -> Iterator[Sample]:
    """Yield a query's samples, `MOST_SERIES` at most; none for what is not known."""
    query = (figures.name,)
    yield Sample(
        catalogue.INFO, 1, (*query, figures.application), extra=label_names(figures.labels)
    )
    yield Sample(catalogue.PHASE, 1, (*query, figures.phase))
    if figures.verdict:
        yield Sample(catalogue.VERDICT, 1, (*query, figures.verdict))
    for kind, records in figures.lost.items():
        yield Sample(catalogue.LOST, records, (*query, kind))
    for metric, value in (*_of_the_row(figures, now), *_of_the_batch(figures.progress)):
        if value is not None:
            yield Sample(metric, value, query)


def label_names(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels under names that Prometheus takes: "app.kubernetes.io" has none of its own."""
    return {f"label_{re.sub('[^a-zA-Z0-9_]', '_', name)}": labels[name] for name in sorted(labels)}


def _of_the_row(figures: QueryFigures, now: datetime) -> tuple[tuple[Metric, float | None], ...]:
    left = (figures.risk_at - now).total_seconds() if figures.risk_at else None
    return (
        (catalogue.DESIRED_RUNNING, figures.wanted),
        (catalogue.PHASE_SINCE, _unix(figures.phase_since)),
        (catalogue.VERDICT_SINCE, _unix(figures.verdict_since) if figures.verdict else None),
        (catalogue.STARTS, figures.starts),
        (catalogue.FAILURES, figures.failures),
        (catalogue.FAILURES_IN_A_ROW, figures.failures_in_a_row),
        (catalogue.EVENT_AT, _unix(figures.event_at)),
        (catalogue.BATCH_AT, _unix(figures.batch_at)),
        (catalogue.LAG_SECONDS, figures.lag_seconds),
        (catalogue.LAG_OFFSETS, figures.lag_offsets),
        (catalogue.RISK_SECONDS, None if left is None else max(0.0, left)),
        (catalogue.SOURCE_REACHABLE, figures.source_reachable),
        (catalogue.DROPPED, figures.dropped),
        (catalogue.MISSING, figures.missing),
    )


def _of_the_batch(progress: Mapping[str, Any]) -> tuple[tuple[Metric, float | None], ...]:
    duration = _number(progress.get("batchDuration"))
    operators = progress.get("stateOperators") or ()
    return (
        (catalogue.BATCH, _number(progress.get("batchId"))),
        (catalogue.BATCH_DURATION, None if duration is None else duration / 1000),
        (catalogue.BATCH_ROWS, _number(progress.get("numInputRows"))),
        (catalogue.INPUT_RATE, _number(progress.get("inputRowsPerSecond"))),
        (catalogue.PROCESSED_RATE, _number(progress.get("processedRowsPerSecond"))),
        (catalogue.WATERMARK, _watermark(progress.get("eventTime"))),
        (catalogue.BATCH_LATE_ROWS, sum(late_rows(progress).values()) if operators else None),
        (catalogue.STATE_ROWS, _sum(operators, "numRowsTotal")),
        (catalogue.STATE_BYTES, _sum(operators, "memoryUsedBytes")),
    )


def _unix(at: datetime | None) -> float | None:
    return at.timestamp() if at else None


def _number(value: Any) -> float | None:
    """Return a finite number; Spark writes others as text, or leaves them out."""
    return value if isinstance(value, int | float) and isfinite(value) else None


def _sum(operators: Any, name: str) -> float | None:
    found = [_number(one.get(name)) for one in operators]
    return sum(one for one in found if one is not None) if found else None


def _watermark(event_time: Any) -> float | None:
    """Return the watermark; Spark says 1970 until there is one."""
    text = (event_time or {}).get("watermark")
    try:
        at = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return at.timestamp() if at and at.timestamp() > 0 else None
