"""The line of a query as list, header and REST body show it: one form for all three."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from listeners.selectors import BatchBar, Dropped
from queries.domain.states import Phase, Verdict
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run


@dataclass(frozen=True, slots=True)
class HealthLine:
    """The verdict of a running query with its evidence."""

    verdict: Verdict
    reason: str  # one sentence with numbers
    since: datetime | None


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """The newest executed batch in numbers."""

    batch_id: int
    timestamp: datetime
    num_input_rows: int
    input_rows_per_second: float | None
    processed_rows_per_second: float | None
    batch_duration_ms: int
    duration_ms: dict[str, int]
    watermark: datetime | None


@dataclass(frozen=True, slots=True)
class QueryLine:
    """Everything a row of the list, the header of a page and a REST body need of a query."""

    query: Query  # application, target_revision, latest checkpoint selected with it
    phase: Phase
    health: HealthLine | None  # None unless RUNNING
    run: Run | None  # the open one, with its driver
    driver: Driver | None
    revision: int | None  # newest number
    running_revision: int | None
    in_sync: bool  # runs what its newest revision says
    trigger: dict[str, Any]  # the running (else newest) revision's trigger
    interval_ms: int | None  # of a processing-time trigger
    pool: str
    checkpoint: str
    progress: ProgressLine | None
    last_event_at: datetime | None
    bars: list[BatchBar]
    dropped: Dropped
    converging: bool  # desired and actual differ
    needs_application_restart: tuple[str, ...]  # why: "pools", "revision", "code"


def query_lines(
    *,
    now: datetime,
    names: tuple[str, ...] = (),
    application: str = "",
    phases: tuple[str, ...] = (),
    verdicts: tuple[str, ...] = (),
    search: str = "",
    pool: str = "",
    bars: int = 40,
) -> list[QueryLine]:
    """Return the lines of living queries by name, in a constant number of database queries."""
    raise NotImplementedError


def query_line(name: str, *, now: datetime) -> QueryLine:
    """Return one living query's line; raise `Missing` where there is none of that name."""
    raise NotImplementedError
