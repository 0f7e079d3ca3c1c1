"""What `decide` returns: plain data, which `services` execute."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from queries.domain.failures.diagnosis import Classified
from queries.domain.protocol import ExitReport, RunError, Want
from queries.domain.reasons import Because
from queries.domain.states import Candidacy, DriverState, Hold, Phase, Reason, RunOutcome
from queries.domain.supervision.observation import StartMark


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
    """A query's state now, and what happens to its run."""

    query: int
    phase: Phase
    reason: Reason
    detail: Because  # the current situation, in addition to the reason
    failures: int
    next_attempt_at: datetime | None
    hold: Hold
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
    hold: Hold
    hold_reason: Because
    seen_generation: int
    reached_generation: int
    wake_at: datetime | None  # latest time to look again; None: only after a nudge
    script: ScriptDecision | None  # None: the application has none
    again: bool  # something ended: decide again immediately
    busy: bool = False  # this host is busy
