"""The draft of a decision: a working copy, changed step by step and then discarded."""

from dataclasses import dataclass, field
from datetime import datetime

from queries.domain.protocol import ExitReport, Hangs, Want
from queries.domain.reasons import Because
from queries.domain.states import Desired, DriverState, Hold, Reason
from queries.domain.supervision.decision import DriverAction, Fault, RunEnd
from queries.domain.supervision.observation import Observation, QuerySeen, RunSeen


@dataclass(slots=True)
class QueryDraft:
    """The draft of one query."""

    seen: QuerySeen
    run: RunSeen | None
    failures: int
    next_attempt_at: datetime | None
    hold: Hold
    detail: Because
    refused: bool = False
    ended: RunEnd | None = None
    completed: bool = False
    open_run: Reason | None = None
    want: Want = Want.RUN
    deadline: datetime | None = None
    hangs: Hangs = Hangs.NOTHING
    stalled: bool = False
    culprit: bool = False  # its start has ended the driver


@dataclass(slots=True)
class Draft:
    """The draft of one application."""

    obs: Observation
    now: datetime
    queries: list[QueryDraft]
    failures: int
    next_attempt_at: datetime | None
    hold: Hold
    hold_reason: Because
    action: DriverAction = DriverAction.NOTHING
    state: DriverState | None = None
    end_wanted: Reason = Reason.NONE
    exit: ExitReport | None = None
    fault: Fault | None = None
    lost: bool = False
    waits: Reason = Reason.NONE
    one_by_one: bool = False  # queries start one after the other (`culprits.py`)
    completed: bool = False  # its script has done its work
    turn: str = ""  # the query that is starting meanwhile
    wakes: list[datetime] = field(default_factory=list)

    @property
    def driver_open(self) -> bool:
        """Whether a driver is there, or about to be."""
        if self.action is DriverAction.LAUNCH:
            return True
        return self.obs.driver is not None and self.exit is None

    @property
    def driver_ready(self) -> bool:
        """Whether the driver's Spark session is up."""
        driver = self.obs.driver
        status = driver.sighting.status if driver else None
        return self.exit is None and status is not None and status.ready

    def due(self, work: QueryDraft) -> bool:
        """Return whether the query should have a run now and has none."""
        if self.obs.script is not None:  # the script starts its queries
            return False
        if work.seen.desired is not Desired.RUNNING or work.run is not None or work.completed:
            return False
        if self.obs.paused or self.hold is Hold.FAILED or work.hold is Hold.FAILED:
            return False
        if work.hold is Hold.BROKEN and work.next_attempt_at is None:
            return False
        return work.next_attempt_at is None or work.next_attempt_at <= self.now
