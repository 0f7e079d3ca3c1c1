"""A query's samples: which metrics in the catalogue it has, and their values."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headgate_ground.tolerant.progress import total
from headgate_ground.tolerant.values import count, rate, time_of
from queries.domain.kafka.losses import late_rows
from queries.domain.metrics import catalogue
from queries.domain.metrics.catalogue import Metric


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One series' value; labels are in the metric's order, followed by `extra`."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """What is known about a query; None or "" if unknown or not applicable."""

    name: str
    application: str
    labels: Mapping[str, str]
    wanted: bool
    phase: str
    phase_since: datetime | None
    verdict: str  # "": not determined
    verdict_since: datetime | None
    starts: int
    failures: int
    failures_in_a_row: int
    event_at: datetime | None = None
    batch_at: datetime | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)  # Spark's JSON for the newest batch
    lag_seconds: float | None = None
    lag_offsets: int | None = None
    table_lag_versions: int | None = None
    table_lag_files: int | None = None
    table_lag_bytes: int | None = None
    risk_at: datetime | None = None
    source_reachable: bool | None = None
    dropped: int | None = None  # None: it has had no driver yet
    missing: int | None = None
    lost: Mapping[str, int] = field(default_factory=dict)  # kind of loss -> records


def samples_of(figures: QueryFigures, *, now: datetime) -> Iterator[MetricSample]:
    """Yield a query's samples, at most `MOST_SERIES`; unknown values yield none."""
    query = (figures.name,)
    yield MetricSample(
        catalogue.INFO, 1, (*query, figures.application), extra=label_names(figures.labels)
    )
    yield MetricSample(catalogue.PHASE, 1, (*query, figures.phase))
    if figures.verdict:
        yield MetricSample(catalogue.VERDICT, 1, (*query, figures.verdict))
    for kind, records in figures.lost.items():
        yield MetricSample(catalogue.LOST, records, (*query, kind))
    for metric, value in (*_of_the_row(figures, now), *_of_the_batch(figures.progress)):
        if value is not None:
            yield MetricSample(metric, value, query)


def label_names(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels under valid Prometheus names ("app.kubernetes.io" is not one)."""
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
        (catalogue.TABLE_LAG_VERSIONS, figures.table_lag_versions),
        (catalogue.TABLE_LAG_FILES, figures.table_lag_files),
        (catalogue.TABLE_LAG_BYTES, figures.table_lag_bytes),
        (catalogue.RISK_SECONDS, None if left is None else max(0.0, left)),
        (catalogue.SOURCE_REACHABLE, figures.source_reachable),
        (catalogue.DROPPED, figures.dropped),
        (catalogue.MISSING, figures.missing),
    )


def _of_the_batch(progress: Mapping[str, Any]) -> tuple[tuple[Metric, float | None], ...]:
    duration = count(progress.get("batchDuration"))
    operators = progress.get("stateOperators")
    return (
        (catalogue.BATCH, count(progress.get("batchId"))),
        (catalogue.BATCH_DURATION, None if duration is None else duration / 1000),
        (catalogue.BATCH_ROWS, count(progress.get("numInputRows"))),
        (catalogue.INPUT_RATE, rate(progress.get("inputRowsPerSecond"))),
        (catalogue.PROCESSED_RATE, rate(progress.get("processedRowsPerSecond"))),
        (catalogue.WATERMARK, _watermark(progress.get("eventTime"))),
        (catalogue.BATCH_LATE_ROWS, sum(late_rows(progress).values()) if operators else None),
        (catalogue.STATE_ROWS, total(operators, "numRowsTotal")),
        (catalogue.STATE_BYTES, total(operators, "memoryUsedBytes")),
    )


def _unix(at: datetime | None) -> float | None:
    return at.timestamp() if at else None


def _watermark(event_time: Any) -> float | None:
    """Return the watermark; Spark reports 1970 until there is one."""
    at = time_of(event_time.get("watermark")) if isinstance(event_time, Mapping) else None
    return at.timestamp() if at and at.timestamp() > 0 else None
