"""Reads of what drivers said, for pages, API and the Observation."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from listeners.wire import Heartbeat


@dataclass(frozen=True, slots=True)
class LatestLine:
    """The newest a query's driver said of it."""

    query: int
    run: int
    at: datetime
    idle_at: datetime | None
    progress_at: datetime | None
    batch: int | None
    progress: dict[str, Any] | None  # Spark's JSON


@dataclass(frozen=True, slots=True)
class BatchBar:
    """One batch in a heartbeat bar, oldest first."""

    batch: int
    at: datetime
    duration_ms: int
    rows: int
    repaired: bool
    run: int
    missing_before: int  # batches of the same run that are known to be missing before this one


@dataclass(frozen=True, slots=True)
class Series:
    """Columns for a chart, uPlot's form: equal lengths, None where there is nothing."""

    at: list[float]  # seconds since 1970, UTC
    columns: dict[str, list[float | None]]
    batches: list[int | None]


@dataclass(frozen=True, slots=True)
class Dropped:
    """What of a query's telemetry was lost, and what of that came back."""

    bus: int  # dropped by Spark's queues of its driver (streams + ours)
    outbox: int
    missing_batches: int
    repaired: int
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class DriverTelemetry:
    """The newest heartbeat of a driver with its age."""

    driver: int
    at: datetime
    received_at: datetime
    heartbeat: Heartbeat


def latest(query_ids: Iterable[int]) -> dict[int, LatestLine]:
    """Return the newest line of each query that has one."""
    raise NotImplementedError


def heartbeat_bars(query_ids: Iterable[int], *, count: int = 40) -> dict[int, list[BatchBar]]:
    """Return each query's last `count` batches, oldest first; in one or two queries in all."""
    raise NotImplementedError


def progress_page(
    query_id: int, *, before: int | None = None, run: int | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """Return progress rows, newest first: {id, run, batch, at, repaired, progress}."""
    raise NotImplementedError


def series(query_id: int, *, since: datetime, until: datetime, points: int = 600) -> Series:
    """Return chart columns of a query.

    Columns: input_rows_per_second, processed_rows_per_second, num_input_rows,
    batch_duration_ms, one `phase_NAME` per entry of durationMs (addBatch, getBatch,
    latestOffset, queryPlanning, walCommit, commitOffsets), watermark_delay_s, state_rows.
    Downsampled (MinMaxLTTB) where there are more than `points`; rollups beyond raw retention.
    """
    raise NotImplementedError


def dropped(query_ids: Iterable[int], *, drivers: dict[int, int]) -> dict[int, Dropped]:
    """Return the losses of each query's present driver (`drivers`: query id -> driver id)."""
    raise NotImplementedError


def drops_since(since: datetime) -> list[dict[str, Any]]:
    """Return rises of drop counters for the banner: {driver, queue, count, since, until}."""
    raise NotImplementedError


def telemetry(driver_ids: Iterable[int]) -> dict[int, DriverTelemetry]:
    """Return the newest heartbeat of each driver that has sent one."""
    raise NotImplementedError


def run_summary(run_id: int) -> dict[str, Any] | None:
    """Return {first, last, batches, rows, repaired} of a run's progress; None where it has none."""
    raise NotImplementedError
