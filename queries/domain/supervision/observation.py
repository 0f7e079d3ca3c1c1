"""A frozen snapshot of everything known about one application: the only input of `decide`.

Observers fill it (`selectors/supervision/observation.py` from the rows, the launcher from
processes and files) and never act.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from queries.domain.protocol import LEAVE_S, ExitReport, Hangs, RunStatus, Status
from queries.domain.reasons import NOTHING, Because
from queries.domain.restart import RestartPolicy
from queries.domain.states import Candidacy, Desired, DriverState, Hold, Phase, Reason, StopMode


class Liveness(StrEnum):
    """What can be proven of a driver now; "unknown" is not "dead" (invariant I3)."""

    ABSENT = "ABSENT"  # no shim ever took it
    SPAWNING = "SPAWNING"  # a shim holds the lock, no identity written yet
    ALIVE = "ALIVE"
    EXITED = "EXITED"  # exit.json is there
    ORPHANED = "ORPHANED"  # its Python is gone, its JVM lives or holds a checkpoint's lock
    GONE = "GONE"  # no shim, no process, no lock, no exit.json: exit UNKNOWN
    ELSEWHERE = "ELSEWHERE"  # belongs to another host, which is silent: nobody can see it


#: Of a driver that has, or may yet get, a process.
LIVING = frozenset({Liveness.SPAWNING, Liveness.ALIVE, Liveness.ORPHANED})
#: Of a driver that ran and whose processes are gone.
PASSED = frozenset({Liveness.EXITED, Liveness.GONE})


@dataclass(frozen=True, slots=True)
class Sighting:
    """All that can be seen of a driver from its host, read in a few milliseconds."""

    liveness: Liveness
    #: Identity of its processes, by column of the driver's row: stored and shown, never judged.
    process: Mapping[str, str | int] = field(default_factory=dict)
    status: Status | None = None
    exit: ExitReport | None = None
    assignment_generation: int = 0  # of its latest assignment
    without_files: bool = False  # it lives, and its files are gone: it hears signals only


@dataclass(frozen=True, slots=True)
class RunSeen:
    """An open run: its row, and what its driver says of it."""

    id: int
    driver: int
    generation: int  # the query's, when the run was made
    created_at: datetime
    ends_by_itself: bool  # its trigger is once or availableNow
    proven_at: datetime | None = None
    committed: bool = False
    stop_asked_at: datetime | None = None
    status: RunStatus | None = None  # None: its driver does not know it yet
    trigger: str = ""  # its kind
    #: Of a run whose driver has ended: the batch that its checkpoint shows begun and not committed.
    in_flight: int | None = None
    in_flight_known: bool = True  # False: its checkpoint cannot tell

    @property
    def candidacy(self) -> Candidacy:
        """Return what it was doing when its driver died."""
        if self.status is None:  # the driver had not begun with it
            return Candidacy.NONE
        if self.proven_at is None:
            return Candidacy.STARTING
        if not self.in_flight_known:
            return Candidacy.UNKNOWN
        return Candidacy.NONE if self.in_flight is None else Candidacy.BATCH


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What a query's runs did when their drivers died, since its counters were cleared."""

    last: Candidacy = Candidacy.NONE  # of its newest run
    run: int = 0  # that run
    lone: int = 0  # its newest runs in a row that were starting, and nothing else, at a death


@dataclass(frozen=True, slots=True)
class QuerySeen:
    """One query that is not deleted: its desired state, and its failures and next attempt."""

    id: int
    name: str
    desired: Desired
    generation: int
    seen_generation: int
    reached_generation: int
    phase: Phase
    phase_reason: Reason
    phase_detail: Because
    stop_mode: StopMode = StopMode.GRACEFUL
    stop_deadline: datetime | None = None
    failures: int = 0
    next_attempt_at: datetime | None = None
    hold: Hold = Hold.NONE
    run: RunSeen | None = None
    hangs: Hangs = Hangs.NOTHING  # of its open run, or of one that has ended, in the open driver
    source_unreachable_since: datetime | None = None  # None: reachable, or not known
    stalled: bool = False  # its health is STALLED (looked at only where the policy acts on it)
    #: (fingerprint, batch) of the newest failures since the counters were cleared, newest first
    recent_failures: tuple[tuple[str, int | None], ...] = ()
    suspicion: Suspicion = Suspicion()  # looked at only after some deaths of drivers in a row
    gone: bool = False  # its script no longer starts it


@dataclass(frozen=True, slots=True)
class DriverSeen:
    """The application's open driver: its row and a sighting."""

    id: int
    epoch: int
    state: DriverState
    generation: int  # the application's, when the driver was made
    created_at: datetime
    sighting: Sighting
    end_wanted: Reason = Reason.NONE
    end_wanted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Slots:
    """The capacity of the host for one more driver."""

    starting: int  # drivers STARTING on the host
    limit: int
    memory_used_mb: int
    memory_budget_mb: int
    memory_needed_mb: int

    @property
    def free(self) -> Reason:
        """Return NONE where a driver may start, else what it waits for."""
        if self.starting >= self.limit:
            return Reason.WAITS_SLOT
        # A driver larger than the whole budget starts alone rather than never.
        over = self.memory_used_mb + self.memory_needed_mb > self.memory_budget_mb
        if over and self.memory_used_mb > 0:
            return Reason.WAITS_MEMORY
        return Reason.NONE


@dataclass(frozen=True, slots=True)
class Limits:
    """The deadlines that settings give."""

    start_s: float  # from spawn to Started
    stop_s: float  # a graceful stop becomes immediate
    leave_s: float = LEAVE_S  # beyond that, the driver is terminated; once more, and it is killed


@dataclass(frozen=True, slots=True)
class ScriptSeen:
    """The script of an application: what is wanted of it, and what it was."""

    desired: Desired
    phase: Phase
    reason: Reason
    detail: Because = NOTHING
    #: (fingerprint, batch) of its newest failures since the counters were cleared, newest first
    recent_failures: tuple[tuple[str, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything observed of one application."""

    application: int
    name: str
    generation: int
    seen_generation: int
    reached_generation: int
    policy: RestartPolicy
    failure_scope: str
    queries: tuple[QuerySeen, ...]
    driver: DriverSeen | None
    slots: Slots
    limits: Limits
    failures: int = 0
    next_attempt_at: datetime | None = None
    hold: Hold = Hold.NONE
    hold_reason: Because = NOTHING
    code_ready: bool = True  # nothing is to be fetched or installed before a driver may start
    paused: bool = False  # its host is being stopped: drivers end, desired states remain
    script: ScriptSeen | None = None  # None: its queries are defined, and have desired states
    silent_host: str = ""  # the host that it is placed on, where that one is silent
