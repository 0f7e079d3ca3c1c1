"""The result of `decide`, plain data that `services` execute, and the draft it is made from."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from queries.domain.failures.diagnosis import Classified
from queries.domain.protocol import ExitReport, Hangs, RunError, Want
from queries.domain.reasons import Because
from queries.domain.states import Candidacy, DriverState, Phase, Reason, RestartBlock, RunOutcome
from queries.domain.supervision.observation import Observation, QuerySeen, RunSeen, StartMark


class DriverAction(StrEnum):
    """What to do with the application's driver process."""

    NOTHING = "NOTHING"
    PREPARE = "PREPARE"  # install its code and packages; a launch follows
    COMPILE = "COMPILE"  # compile our Java classes; a launch follows
    LAUNCH = "LAUNCH"  # create a row, then call the launcher
    TAKE_OVER = "TAKE_OVER"  # as LAUNCH, but a standby driver becomes the driver
    SPAWN = "SPAWN"  # the row exists, but its process does not: complete the launch
    SEAL = "SEAL"  # nobody has started its process: make sure that nobody ever does
    TERMINATE = "TERMINATE"
    KILL = "KILL"


@dataclass(frozen=True, slots=True)
class Fault:
    """A classified failure to record."""

    classified: Classified
    fingerprint: str
    error: RunError | None
    batch: int | None = None
    offsets: dict[str, Any] = field(default_factory=dict)
    last_progress: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How an open run ended."""

    run: int
    outcome: RunOutcome
    fault: Fault | None = None
    candidacy: Candidacy = Candidacy.NONE  # what it was doing when its driver died
    batch: int | None = None  # in flight at that moment

    def with_fault(self, fault: Fault) -> "RunEnd":
        """Return the same end, as a failure of the query."""
        return replace(self, fault=fault)


@dataclass(frozen=True, slots=True)
class QueryDecision:
    """A query's current state, and the action on its run."""

    query: int
    phase: Phase
    reason: Reason
    detail: Because  # the current situation, in addition to the reason
    failures: int
    next_attempt_at: datetime | None
    restart_block: RestartBlock
    seen_generation: int
    reached_generation: int
    ended: RunEnd | None = None
    completed: bool = False  # desired := STOPPED, unless the generation has changed
    open_run: Reason | None = None  # why to open a run; None: do not open one
    want: Want = Want.RUN  # of the run that stays open
    deadline: datetime | None = None  # when a DRAIN becomes a STOP


@dataclass(frozen=True, slots=True)
class DriverDecision:
    """What happens to the driver."""

    action: DriverAction = DriverAction.NOTHING
    state: DriverState | None = None  # None: there is no row to change
    end_wanted: Reason = Reason.NONE
    exit: ExitReport | None = None  # it has ended, in this way
    fault: Fault | None = None  # None: the end was requested
    reason: Reason = Reason.NONE  # the reason for its state
    progress: StartMark | None = None  # of its start; None: there is no driver


@dataclass(frozen=True, slots=True)
class ScriptDecision:
    """The state of an application's script now."""

    phase: Phase
    reason: Reason
    detail: Because
    completed: bool = False  # desired := STOPPED, unless the generation has changed


@dataclass(frozen=True, slots=True)
class Decision:
    """The complete next step for one application."""

    driver: DriverDecision
    queries: tuple[QueryDecision, ...]
    failures: int
    next_attempt_at: datetime | None
    restart_block: RestartBlock
    restart_block_reason: Because
    seen_generation: int
    reached_generation: int
    wake_at: datetime | None  # latest time to look again; None: only after a nudge
    script: ScriptDecision | None  # None: the application has none
    again: bool  # something ended: decide again immediately
    busy: bool = False  # this host is busy


@dataclass(slots=True)
class QueryDraft:
    """The draft of one query."""

    observed: QuerySeen
    run: RunSeen | None
    failures: int
    next_attempt_at: datetime | None
    restart_block: RestartBlock
    detail: Because
    refused: bool = False
    ended: RunEnd | None = None
    completed: bool = False
    open_run: Reason | None = None
    want: Want = Want.RUN
    deadline: datetime | None = None
    hangs: Hangs = Hangs.NOTHING
    ending: Reason = Reason.NONE  # why its open run should end; NONE: it continues
    restart_block_cause: Reason = (
        Reason.NONE
    )  # why its end holds the query; NONE: it does not, or did before

    @property
    def is_calm(self) -> bool:
        """Return whether the query has proven that it runs, or has nothing under way."""
        proven = self.run is not None and self.run.proven_at is not None and self.want is Want.RUN
        return proven or (self.run is None and self.open_run is None and self.ended is None)


class Workload(Protocol):
    """What an application runs: defined queries (`defined.py`), or a script (`script.py`).

    It is chosen once, at the beginning of a decision; everything else is the same for both.
    """

    def is_sequential(self, draft: "Draft") -> bool:
        """Return whether queries start one after the other."""

    def blame(self, draft: "Draft") -> None:
        """Put on hold the query that killed the driver, if that is proven."""

    def stopped_by_itself(self) -> bool:
        """Return whether a query that ended without a request was stopped rather than failed."""

    def run_ended(self, draft: "Draft", work: QueryDraft, ended: RunEnd) -> None:
        """Settle the end of a query's run."""

    def is_due(self, draft: "Draft", work: QueryDraft) -> bool:
        """Return whether a query should have a run now but has none."""

    def needs_driver(self, draft: "Draft") -> bool:
        """Return whether something should have a driver now."""

    def end_reason(self, draft: "Draft", generation: int) -> Reason:
        """Return why the open driver, launched for a generation, must end; NONE if it continues."""

    def open_runs(self, draft: "Draft") -> None:
        """Open a run for each query that is due and has a driver to run it."""

    def stalled(self, draft: "Draft", work: QueryDraft) -> bool:
        """Return whether a query is being restarted because it has stalled."""

    def reached(self, draft: "Draft") -> bool:
        """Return whether the application has reached its newest generation."""

    def name_query(self, draft: "Draft", work: QueryDraft) -> tuple[Phase, Reason, Because]:
        """Return a query's phase, its reason and its current activity."""

    def decision(self, draft: "Draft") -> ScriptDecision | None:
        """Return the script's state now; None if there is no script."""


@dataclass(slots=True)
class Draft:
    """The draft of one application."""

    obs: Observation
    subject: Workload
    now: datetime
    queries: list[QueryDraft]
    failures: int
    next_attempt_at: datetime | None
    restart_block: RestartBlock
    restart_block_reason: Because
    action: DriverAction = DriverAction.NOTHING
    state: DriverState | None = None
    end_wanted: Reason = Reason.NONE
    exit: ExitReport | None = None
    fault: Fault | None = None
    exit_reason: Reason = Reason.NONE  # how the driver ended; NONE: it is still open
    deaths: int = 0  # of drivers, in a row
    restart_block_cause: Reason = (
        Reason.NONE
    )  # why its end holds the script; NONE: it does not, or did before
    lost: bool = False
    progress: StartMark | None = None  # of the open driver's start
    waits: Reason = Reason.NONE
    is_sequential: bool = False  # queries start one after the other (`outcomes.py`)
    completed: bool = False  # its script has finished
    starting_query: str = ""  # the query that is starting now
    wakes: list[datetime] = field(default_factory=list)

    @property
    def driver_open(self) -> bool:
        """Return whether a driver is open or about to be launched."""
        if self.action in {DriverAction.LAUNCH, DriverAction.TAKE_OVER}:
            return True
        return self.obs.driver is not None and self.exit is None

    @property
    def replaced_by(self) -> Reason:
        """Return why a driver is replaced: an operator's restart, or supervision's choice."""
        driver = self.obs.driver
        restart_requested = driver is not None and self.obs.generation > driver.generation
        return Reason.ASKED_RESTART if restart_requested else Reason.REPLACED

    @property
    def busy(self) -> str:
        """Return the figure that shows that this host is busy; "" if it is not."""
        pressure = self.obs.pressure
        return pressure.figure if pressure is not None and pressure.is_high else ""

    @property
    def driver_ready(self) -> bool:
        """Return whether the driver's Spark session is up."""
        driver = self.obs.driver
        status = driver.sighting.status if driver else None
        return self.exit is None and status is not None and status.ready
