"""The metrics that Headgate exposes, named by Prometheus' rules, and a query's samples of them.

A test compares `docs/metrics.md` with it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from headgate_ground.tolerant import count, rate, time_of, total
from queries.domain.kafka.losses import late_rows


class MetricKind(StrEnum):
    """How a value can change between two scrapes."""

    GAUGE = "gauge"
    COUNTER = "counter"  # only increases, or restarts from 0


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its HELP text gives the unit and says when there are no series."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE


def _query(name: str, text: str, *labels: str, kind: MetricKind = MetricKind.GAUGE) -> Metric:
    return Metric(f"headgate_query_{name}", text, ("query", *labels), kind)


def _system(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"headgate_{name}", text, labels)


#: Maximum series per query: a scrape must stay small however many queries there are.
MOST_SERIES: Final = 34

# --- queries that run, or should run ------------------------------------------------------
INFO = _query(
    "info",
    "Always 1; the labels contain the query's application and, as label_NAME, the labels of the"
    " query and its application. The query's labels take precedence.",
    "application",
)
DESIRED_RUNNING = _query("desired_running", "1 if the query should run, else 0.")
PHASE = _query(
    "phase", "1 for the phase that the query is in; other phases have no series.", "phase"
)
PHASE_SINCE = _query(
    "phase_start_timestamp_seconds", "Time at which the query entered its phase, in Unix seconds."
)
VERDICT = _query(
    "verdict",
    "1 for the current verdict on the query's health; no series if there is no verdict.",
    "verdict",
)
VERDICT_SINCE = _query(
    "verdict_start_timestamp_seconds", "Time at which the query got its verdict, in Unix seconds."
)
STARTS = _query(
    "starts_total", "Runs of the query, including the first start.", kind=MetricKind.COUNTER
)
FAILURES = _query("failures_total", "Failures of the query.", kind=MetricKind.COUNTER)
FAILURES_IN_A_ROW = _query(
    "failures_in_a_row", "Failures since the query last worked or a user last started it."
)
EVENT_AT = _query(
    "last_event_timestamp_seconds",
    "Time at which the query's driver last sent an event about the query, in Unix seconds.",
)
BATCH_AT = _query(
    "last_batch_timestamp_seconds", "Time at which the newest batch was triggered, in Unix seconds."
)
BATCH = _query("last_batch_id", "ID of the newest batch.")
BATCH_DURATION = _query("last_batch_duration_seconds", "Duration of the newest batch, in seconds.")
BATCH_ROWS = _query("last_batch_input_rows", "Rows that the newest batch read.")
BATCH_LATE_ROWS = _query(
    "last_batch_late_rows",
    "Rows in the newest batch that stateful operators dropped because they were behind the"
    " watermark.",
)
INPUT_RATE = _query("input_rows_per_second", "Rows per second that arrived in the newest batch.")
PROCESSED_RATE = _query(
    "processed_rows_per_second", "Rows per second that were processed in the newest batch."
)
WATERMARK = _query("watermark_timestamp_seconds", "The watermark, an event time in Unix seconds.")
STATE_ROWS = _query("state_rows", "Rows in the state stores of all stateful operators.")
STATE_BYTES = _query("state_memory_bytes", "Memory used by all state stores, in bytes.")
LAG_SECONDS = _query(
    "lag_seconds",
    "Age of the oldest unread record in the query's Kafka topics, or of the oldest unread version"
    " of its tables, in seconds; no series if the age is unknown, was measured more than 30 s ago"
    " (11 min for tables), or was measured before the query's last run ended.",
)
LAG_OFFSETS = _query(
    "lag_offsets",
    "Unread offsets in the query's Kafka topics; no series if headgate_query_lag_seconds has"
    " none. Unless a topic is compacted or transactional, each offset holds a record.",
)
TABLE_LAG_VERSIONS = _query(
    "table_lag_versions",
    "Unread versions of the query's Delta tables and unread snapshots of its Iceberg tables; no"
    " series if the number is unknown or as old as described for headgate_query_lag_seconds.",
)
TABLE_LAG_FILES = _query(
    "table_lag_files", "Files in the versions counted by headgate_query_table_lag_versions."
)
TABLE_LAG_BYTES = _query(
    "table_lag_bytes", "Bytes of the files counted by headgate_query_table_lag_files."
)
RISK_SECONDS = _query(
    "risk_seconds",
    "Seconds until the source may delete the first unread record, or 0 if it may do so already;"
    " no series if there is no such risk.",
)
SOURCE_REACHABLE = _query(
    "source_reachable",
    "1 if the query's Kafka brokers respond, 0 if they do not; no series if this is unknown.",
)
DROPPED = _query(
    "dropped_events_total",
    "Events dropped by the queues of the query's current driver; starts from 0 with each new"
    " driver.",
    kind=MetricKind.COUNTER,
)
MISSING = _query(
    "missing_batches",
    "Batches of the query's current driver whose events are missing and have not been recovered.",
)
LOST = _query(
    "lost_records_total",
    "Records in the query's loss ledger, by kind of loss; counted in offsets if the number of"
    " records is unknown. Subtract the `corrected` kind, which counts records that turned out"
    " not to be lost (a counter never decreases).",
    "kind",
    kind=MetricKind.COUNTER,
)

QUERY_METRICS: Final = (
    *(INFO, DESIRED_RUNNING, PHASE, PHASE_SINCE, VERDICT, VERDICT_SINCE),
    *(STARTS, FAILURES, FAILURES_IN_A_ROW, EVENT_AT),
    *(BATCH_AT, BATCH, BATCH_DURATION, BATCH_ROWS, BATCH_LATE_ROWS, INPUT_RATE, PROCESSED_RATE),
    *(WATERMARK, STATE_ROWS, STATE_BYTES),
    *(LAG_SECONDS, LAG_OFFSETS, TABLE_LAG_VERSIONS, TABLE_LAG_FILES, TABLE_LAG_BYTES),
    *(RISK_SECONDS, SOURCE_REACHABLE),
    *(DROPPED, MISSING, LOST),
)

# --- Headgate itself ----------------------------------------------------------------------
BUILD = _system("build_info", "Always 1; the label contains Headgate's version.", "version")
PART_UP = _system(
    "part_up",
    "1 if this part of Headgate works, 0 if it has a problem; no series if its state is unknown.",
    "part",
)
QUERIES = _system(
    "queries", "Defined queries by phase, including those without series of their own.", "phase"
)
DRIVERS = _system("drivers", "Open driver processes by state.", "state")
HOST_SEEN = _system(
    "host_seen_timestamp_seconds",
    "Time of the last heartbeat from a host's worker, in Unix seconds.",
    "host",
)
LAST_SWEEP = _system(
    "last_sweep_timestamp_seconds", "Time at which a worker last finished a sweep, in Unix seconds."
)
TICK_ENDED = _system(
    "tick_last_end_timestamp_seconds",
    "Time at which a host's worker last finished a kind of periodic work, in Unix seconds.",
    "host",
    "tick",
)
QUEUE_TASKS = _system("queue_tasks", "Tasks waiting in a Celery queue.", "queue")
STREAM_EVENTS = _system("event_stream_entries", "Entries in the event streams of drivers.")
INGEST_LAG = _system(
    "ingest_lag_seconds",
    "Seconds between the newest event in a driver's stream and the newest event that the"
    " ingester has read from that stream; the highest value of all streams.",
)
DEAD_LETTERS = _system("dead_letters", "Events that could not be read and were set aside.")
WORK_LEFT = _system(
    "bulk_work_left_rows",
    "Rows still to be processed by bulk work (loss ledger, gaps, retention).",
    "work",
)
WORK_AGE = _system(
    "bulk_work_oldest_seconds", "Age of the oldest row still to be processed, in seconds.", "work"
)
INCIDENTS = _system("incidents_open", "Open incidents.", "kind", "severity")
DELIVERIES = _system("deliveries", "Messages about incidents by delivery state.", "state")
DELIVERY_AGE = _system(
    "delivery_oldest_waiting_seconds",
    "Age of the oldest message that is waiting to be delivered, in seconds; 0 if there is none.",
)
CHANNELS_FAILING = _system(
    "channels_failing", "Enabled channels that currently fail to deliver messages."
)
DISK_FREE = _system(
    "disk_free_bytes", "Free space on the disk that holds Headgate's data, in bytes."
)

SYSTEM_METRICS: Final = (
    *(BUILD, PART_UP, QUERIES, DRIVERS, HOST_SEEN, LAST_SWEEP, TICK_ENDED, QUEUE_TASKS),
    *(STREAM_EVENTS, INGEST_LAG, DEAD_LETTERS, WORK_LEFT, WORK_AGE),
    *(INCIDENTS, DELIVERIES, DELIVERY_AGE, CHANNELS_FAILING, DISK_FREE),
)
METRICS: Final = QUERY_METRICS + SYSTEM_METRICS


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
    yield MetricSample(INFO, 1, (*query, figures.application), extra=label_names(figures.labels))
    yield MetricSample(PHASE, 1, (*query, figures.phase))
    if figures.verdict:
        yield MetricSample(VERDICT, 1, (*query, figures.verdict))
    for kind, records in figures.lost.items():
        yield MetricSample(LOST, records, (*query, kind))
    for metric, value in (*_of_the_row(figures, now), *_of_the_batch(figures.progress)):
        if value is not None:
            yield MetricSample(metric, value, query)


def label_names(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels under valid Prometheus names ("app.kubernetes.io" is not one)."""
    return {f"label_{re.sub('[^a-zA-Z0-9_]', '_', name)}": labels[name] for name in sorted(labels)}


def _of_the_row(figures: QueryFigures, now: datetime) -> tuple[tuple[Metric, float | None], ...]:
    left = (figures.risk_at - now).total_seconds() if figures.risk_at else None
    return (
        (DESIRED_RUNNING, figures.wanted),
        (PHASE_SINCE, _unix(figures.phase_since)),
        (VERDICT_SINCE, _unix(figures.verdict_since) if figures.verdict else None),
        (STARTS, figures.starts),
        (FAILURES, figures.failures),
        (FAILURES_IN_A_ROW, figures.failures_in_a_row),
        (EVENT_AT, _unix(figures.event_at)),
        (BATCH_AT, _unix(figures.batch_at)),
        (LAG_SECONDS, figures.lag_seconds),
        (LAG_OFFSETS, figures.lag_offsets),
        (TABLE_LAG_VERSIONS, figures.table_lag_versions),
        (TABLE_LAG_FILES, figures.table_lag_files),
        (TABLE_LAG_BYTES, figures.table_lag_bytes),
        (RISK_SECONDS, None if left is None else max(0.0, left)),
        (SOURCE_REACHABLE, figures.source_reachable),
        (DROPPED, figures.dropped),
        (MISSING, figures.missing),
    )


def _of_the_batch(progress: Mapping[str, Any]) -> tuple[tuple[Metric, float | None], ...]:
    duration = count(progress.get("batchDuration"))
    operators = progress.get("stateOperators")
    return (
        (BATCH, count(progress.get("batchId"))),
        (BATCH_DURATION, None if duration is None else duration / 1000),
        (BATCH_ROWS, count(progress.get("numInputRows"))),
        (INPUT_RATE, rate(progress.get("inputRowsPerSecond"))),
        (PROCESSED_RATE, rate(progress.get("processedRowsPerSecond"))),
        (WATERMARK, _watermark(progress.get("eventTime"))),
        (BATCH_LATE_ROWS, sum(late_rows(progress).values()) if operators else None),
        (STATE_ROWS, total(operators, "numRowsTotal")),
        (STATE_BYTES, total(operators, "memoryUsedBytes")),
    )


def _unix(at: datetime | None) -> float | None:
    return at.timestamp() if at else None


def _watermark(event_time: Any) -> float | None:
    """Return the watermark; Spark reports 1970 until there is one."""
    at = time_of(event_time.get("watermark")) if isinstance(event_time, Mapping) else None
    return at.timestamp() if at and at.timestamp() > 0 else None
