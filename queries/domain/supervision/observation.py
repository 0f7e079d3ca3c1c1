"""A frozen snapshot of everything known about one application, executors included.

Observers fill it (`selectors/supervision/observation.py` from rows, the launcher from processes and
files) and never change anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from queries.domain.failures.categories import FailureSubject
from queries.domain.hosts import Pressure
from queries.domain.protocol import (
    LEAVE_S,
    DriverStatus,
    ExecutorsWanted,
    ExitReport,
    Hangs,
    RunStatus,
)
from queries.domain.readings import counted
from queries.domain.reasons import NOTHING, Because
from queries.domain.restart import Earlier, RestartPolicy
from queries.domain.states import (
    Candidacy,
    Desired,
    DriverState,
    Phase,
    Reason,
    RestartBlock,
    StopMode,
)

#: How long a driver may lack an active executor before it counts as having none: executors normally
#: arrive within seconds.
NONE_FOR = timedelta(seconds=15)
#: How long a query's page mentions a lost executor.
RECENT = timedelta(minutes=10)

Workers = tuple[tuple[int, int], ...]  # (cores, MB)


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor, as its driver reported it."""

    id: str
    address: str  # "host:port"
    cores: int
    active: bool
    added_at: datetime
    removed_at: datetime | None
    reason: str  # why it was removed, in Spark's words


@dataclass(frozen=True, slots=True)
class DriverExecutors:
    """All executors of a driver; empty with a local master."""

    active: tuple[Executor, ...] = ()
    lost: tuple[Executor, ...] = ()  # newest first
    news: str = ""  # losses in the last minutes, and whether they were replaced

    @property
    def cores(self) -> int:
        """Return how many tasks can run at the same time."""
        return sum(executor.cores for executor in self.active)


def executors(reported_executors: Iterable[Mapping[str, Any]], *, now: datetime) -> DriverExecutors:
    """Return the executors from a driver's row; `reported_executors` is their JSON form."""
    all_executors = [_executor(executor) for executor in reported_executors]
    active = tuple(executor for executor in all_executors if executor.active)
    lost = tuple(executor for executor in all_executors if not executor.active)
    recent = [
        executor for executor in lost if executor.removed_at and now - executor.removed_at <= RECENT
    ]
    return DriverExecutors(active, lost, _news(recent, active))


def missing_executors(wanted: ExecutorsWanted) -> str:
    """Return the driver's request, the cluster's resources, and a size that would fit."""
    since = datetime.fromisoformat(wanted.since)
    more = f" with {wanted.overhead_mb} MB of overhead" if wanted.overhead_mb else ""
    size = f"{wanted.memory_mb} MB{more} and {counted(wanted.cores, 'core')}"
    request = (
        f"YARN has not started its application master since {since:%H:%M:%S} UTC, so there is no "
        f"Spark session. The driver requests {size}."
        if wanted.application_master
        else f"No executor has been active since {since:%H:%M:%S} UTC, so no tasks run. The "
        f"driver requests executors of {size}."
    )
    if wanted.pod_reason is not None:
        return f"{request} {wanted.pod_reason or _NO_REASON}"
    if wanted.workers is None:
        return f"{request} The cluster manager does not report its resources; check its web page."
    if not wanted.workers:
        return f"{request} The cluster has no workers: start one."
    count = f"{len(wanted.workers)} workers, the largest" if wanted.workers[1:] else "1 worker,"
    has = f"{request} The cluster has {count} with {_largest(wanted.workers)}."
    if not _fits(wanted, wanted.workers):
        return f"{has} {_smaller(wanted, wanted.workers)}, or add a larger worker; {_AGAIN}"
    if wanted.free is None or _fits(wanted, wanted.free):
        return (
            f"{has} The request would fit, but other applications hold these resources, or a "
            "worker is still starting."
        )
    rest = "applications hold the rest, including this application's own master"
    rest = "other applications hold the rest" if wanted.application_master else rest
    left = f"{has} At most {_largest(wanted.free)} are free on one worker; {rest}."
    if max(memory for _, memory in wanted.free) <= wanted.overhead_mb:
        return f"{left} End one of these, lower spark.yarn.am.memory, or add a worker."
    fewer = _smaller(wanted, wanted.free)
    return f"{left} {fewer}, end another application, or add a worker; {_AGAIN}"


_NO_REASON = (
    "Kubernetes gives no reason; look at the namespace's pods and quota, and at the driver's log."
)
_AGAIN = "then restart the application."


def _fits(wanted: ExecutorsWanted, workers: Workers) -> bool:
    memory = wanted.memory_mb + wanted.overhead_mb
    return any(worker[0] >= wanted.cores and worker[1] >= memory for worker in workers)


def _largest(workers: Workers) -> str:
    cores, memory = max(workers, key=lambda one: (one[1], one[0]))
    return f"{memory} MB and {counted(cores, 'core')}"


def _smaller(wanted: ExecutorsWanted, workers: Workers) -> str:
    """Return the settings for which the largest of these workers would be sufficient."""
    cores, memory = max(workers, key=lambda one: (one[1], one[0]))
    of = "yarn.am" if wanted.application_master else "executor"
    return (
        f"Set spark.{of}.memory to at most {max(1, memory - wanted.overhead_mb)}m and "
        f"spark.{of}.cores to at most {max(1, cores)}"
    )


def idle_since(wanted: Mapping[str, Any] | None) -> datetime | None:
    """Return since when a driver that requests executors has had none; `wanted` is from its row."""
    return datetime.fromisoformat(wanted["since"]) if wanted else None


def _news(lost: list[Executor], active: tuple[Executor, ...]) -> str:
    if not lost:
        return ""
    first = lost[-1]
    which = (
        f"Executor {first.id} on {first.address} was"
        if len(lost) == 1
        else f"{len(lost)} executors were"
    )
    reason = first.reason if len(lost) == 1 else ""
    is_sentence = reason.startswith("The ")  # ours, about a pod; Spark's own are fragments
    why = f" ({reason.rstrip('. ')})" if reason and not is_sentence else ""
    sentence = f"{reason} " if is_sentence else ""
    assert first.removed_at is not None
    replacements = sum(executor.added_at >= first.removed_at for executor in active)
    again = f"{replacements} replaced" if replacements else "not replaced yet"
    cores = sum(executor.cores for executor in active)
    return (
        f"{which} lost at {first.removed_at:%H:%M:%S} UTC{why}; {again}. "
        f"{sentence}{len(active)} with {counted(cores, 'core')} "
        f"{'is' if len(active) == 1 else 'are'} active."
    )


def _executor(fields: Mapping[str, Any]) -> Executor:
    removed = fields.get("removed_at")
    return Executor(
        id=fields["id"],
        address=fields["address"],
        cores=fields["cores"],
        active=fields["active"],
        added_at=datetime.fromisoformat(fields["added_at"]),
        removed_at=datetime.fromisoformat(removed) if removed else None,
        reason=fields.get("reason", ""),
    )


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
#: must not hold up the others (a start on two quiet cores takes 11 s: docs/figures.md).
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
    #: For a pod: why its containers do not run yet, and when they began to. Waiting for a node or
    #: an image is not part of a start that could be stuck.
    pending: str | None = None  # "": no reason is known; None: they run, or it is no pod
    began_at: datetime | None = None
    ended: str = ""  # why the pod ended, by the kubelet's word; "" if nothing is to be said


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

        It starts the query only then.
        """
        until = self.status.waits_until if self.status is not None else None
        return datetime.fromisoformat(until) if until else None

    @property
    def candidacy(self) -> Candidacy:
        """Return the run's activity when its driver died."""
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
    restart_block: RestartBlock = RestartBlock.NONE
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
        """Return since when it has been expected to start.

        A standby starts long before that, and a pod only once a node has taken it.
        """
        return max(self.took_over_at or self.created_at, self.sighting.began_at or self.created_at)


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
        """Return NONE if a driver may start, otherwise the condition that it is waiting for."""
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
    #: How many of these are driver deaths in a row (`outcomes.is_in_a_row`); determined only after
    #: several.
    deaths: int = 0
    next_attempt_at: datetime | None = None
    restart_block: RestartBlock = RestartBlock.NONE
    restart_block_reason: Because = NOTHING
    code_ready: bool = True  # nothing needs to be fetched or installed before a driver may start
    no_classes: str = ""  # why this host lacks our Java classes (part of a sentence); "" if not
    classes_failed: bool = False  # they could not be compiled
    paused: bool = False  # its host is being stopped: drivers end, desired states remain
    script: ScriptSeen | None = None  # None: its queries are defined, and have desired states
    standby: bool = False  # a standby driver may take over, and fits the current definition
    silent_host: str = ""  # the host that it is placed on, if that host is silent
    pressure: Pressure | None = None  # of this host; None: not read
