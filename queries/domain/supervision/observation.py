"""A frozen snapshot of everything known about one application: the only input of `decide`.

Observers fill it (`selectors/supervision/observation.py` from rows, the launcher from processes and
files) and never change anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from queries.domain.failures.subjects import FailureSubject
from queries.domain.pressure import Pressure
from queries.domain.protocol import LEAVE_S, DriverStatus, ExitReport, Hangs, RunStatus
from queries.domain.reasons import NOTHING, Because
from queries.domain.restart import Earlier, RestartPolicy
from queries.domain.states import Candidacy, Desired, DriverState, Hold, Phase, Reason, StopMode


class Liveness(StrEnum):
    """What can currently be proven about a driver; "unknown" is not "dead" (invariant I3)."""

    ABSENT = "ABSENT"  # no shim ever claimed it
    SPAWNING = "SPAWNING"  # a shim holds the lock, but has not written the identity yet
    ALIVE = "ALIVE"
    EXITED = "EXITED"  # exit.json exists
    ORPHANED = "ORPHANED"  # its Python is gone, but its JVM is alive or holds a checkpoint's lock
    GONE = "GONE"  # no shim, no process, no lock, no exit.json: exit UNKNOWN
    ELSEWHERE = "ELSEWHERE"  # on another host, which is silent: its state cannot be seen


#: A driver that has, or may yet get, a process.
LIVING = frozenset({Liveness.SPAWNING, Liveness.ALIVE, Liveness.ORPHANED})
#: A driver that ran and whose processes are gone.
PASSED = frozenset({Liveness.EXITED, Liveness.GONE})
#: A driver that has been starting for longer waits for something other than this host's cores, and
#: must not hold up the others (a start on two quiet cores takes 11 s: docs/performance.md).
HOLDS_SLOT = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Sighting:
    """Everything that its host can see of a driver, read within a few milliseconds."""

    liveness: Liveness
    #: Identity of its processes, by column of the driver's row: stored and shown, never used in
    #: decisions.
    process: Mapping[str, str | int] = field(default_factory=dict)
    status: DriverStatus | None = None
    exit: ExitReport | None = None
    assignment_generation: int = 0  # of its latest assignment
    without_files: bool = False  # it is alive but its files are gone: it receives only signals
    #: Processor time used by all of its processes, in seconds; None: not read, because it is up.
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunSeen:
    """An open run: its row, and its driver's report."""

    id: int
    driver: int
    generation: int  # of the query, when the run was created
    created_at: datetime
    ends_by_itself: bool  # its trigger is once or availableNow
    proven_at: datetime | None = None
    committed: bool = False
    stop_asked_at: datetime | None = None
    status: RunStatus | None = None  # None: its driver does not know it yet
    trigger: str = ""  # kind of its trigger
    subject: FailureSubject = FailureSubject.SQL  # what kind of subject a failure would concern
    #: For a run whose driver has ended: the batch in its checkpoint that was begun but not
    #: committed.
    in_flight: int | None = None
    in_flight_known: bool = True  # False: its checkpoint does not show it

    @property
    def waits_until(self) -> datetime | None:
        """Return until when the run waits for a former owner of its checkpoint; None: it does not.

        It has not started on the query before.
        """
        until = self.status.waits_until if self.status is not None else None
        return datetime.fromisoformat(until) if until else None

    @property
    def candidacy(self) -> Candidacy:
        """Return what the run was doing when its driver died."""
        if self.status is None or self.waits_until is not None:  # it had not started on the query
            return Candidacy.NONE
        if self.proven_at is None:
            return Candidacy.STARTING
        if not self.in_flight_known:
            return Candidacy.UNKNOWN
        return Candidacy.NONE if self.in_flight is None else Candidacy.BATCH


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What a query's runs were doing when their drivers died, since its counters were cleared."""

    last: Candidacy = Candidacy.NONE  # of its newest run
    run: int = 0  # its newest run
    lone: int = 0  # how many of its newest runs in a row were starting alone when the driver died


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
    hangs: Hangs = Hangs.NOTHING  # of its open run, or of an ended run, in the open driver
    source_unreachable_since: datetime | None = None  # None: reachable, or unknown
    stalled: bool = False  # its health is STALLED (checked only if the policy depends on it)
    recent_failures: tuple[Earlier, ...] = ()  # newest first
    suspicion: Suspicion = Suspicion()  # determined only after several driver deaths in a row
    is_dropped: bool = False  # its script no longer starts it
    remote: bool = False  # its checkpoint is not on a local disk


@dataclass(frozen=True, slots=True)
class StartMark:
    """When a driver's start was last seen to have advanced, and how far."""

    at: datetime
    cpu_s: float = 0.0  # processor time used until then, by all of its processes
    step: str = ""  # the newest step that it had reported


@dataclass(frozen=True, slots=True)
class DriverSeen:
    """The application's open driver: its row and a sighting."""

    id: int
    epoch: int
    state: DriverState
    generation: int  # of the application, when the driver was created
    created_at: datetime
    sighting: Sighting
    end_wanted: Reason = Reason.NONE
    end_wanted_at: datetime | None = None
    took_over_at: datetime | None = None  # None: it was never a standby
    progress: StartMark | None = None  # of its start, as last recorded; None: not recorded yet

    @property
    def began_at(self) -> datetime:
        """Return since when it has been expected to start: a standby starts long before."""
        return self.took_over_at or self.created_at


@dataclass(frozen=True, slots=True)
class Slots:
    """The host's capacity for one more driver."""

    starting: int  # drivers that began to start on the host a moment ago
    limit: int
    memory_used_mb: int
    memory_budget_mb: int
    memory_needed_mb: int

    @property
    def free(self) -> Reason:
        """Return NONE if a driver may start, otherwise what it is waiting for."""
        if self.starting >= self.limit:
            return Reason.WAITS_SLOT
        return Reason.NONE if self.has_memory else Reason.WAITS_MEMORY

    @property
    def has_memory(self) -> bool:
        """Return whether the host has the memory: all that a storage JVM waits for."""
        # A driver larger than the whole budget starts alone rather than never.
        fits = self.memory_used_mb + self.memory_needed_mb <= self.memory_budget_mb
        return fits or self.memory_used_mb <= 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines from the settings."""

    start_s: float  # for a start to advance, from spawn to Started
    start_max_s: float  # for the whole start, however it advances
    stop_s: float  # until a graceful stop becomes an immediate one
    leave_s: float = LEAVE_S  # until the driver is terminated; it is killed after as long again


@dataclass(frozen=True, slots=True)
class ScriptSeen:
    """An application's script: its desired state and its history."""

    desired: Desired
    phase: Phase
    reason: Reason
    detail: Because = NOTHING


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything observed about one application."""

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
    recent_failures: tuple[Earlier, ...] = ()  # of its drivers, newest first
    #: How many of these are driver deaths in a row (`culprits.is_in_a_row`); determined only after
    #: several.
    deaths: int = 0
    next_attempt_at: datetime | None = None
    hold: Hold = Hold.NONE
    hold_reason: Because = NOTHING
    code_ready: bool = True  # nothing needs to be fetched or installed before a driver may start
    no_classes: str = ""  # why this host lacks our Java classes (part of a sentence); "" if not
    classes_failed: bool = False  # they could not be compiled
    paused: bool = False  # its host is being stopped: drivers end, desired states remain
    script: ScriptSeen | None = None  # None: its queries are defined, and have desired states
    standby: bool = False  # a standby driver may take over, and fits the current definition
    silent_host: str = ""  # the host that it is placed on, if that host is silent
    pressure: Pressure | None = None  # of this host; None: not read
