"""The states of queries, drivers, runs and operations, and what each of them means.

Phases have their own descriptions. The sets below are the only place where states are grouped, so
that pages, filters and decisions never disagree.
"""

from enum import StrEnum
from typing import Self


class Described(StrEnum):
    """A code with the words that pages show for it."""

    description: str

    def __new__(cls, code: str, description: str = "") -> Self:
        """Return a member whose value is only its code."""
        member = str.__new__(cls, code)
        member._value_, member.description = code, description
        return member


class Desired(StrEnum):
    """What the operator wants a query to do."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"


class StopMode(StrEnum):
    """How a stop treats the batch in flight."""

    GRACEFUL = "graceful"
    NOW = "now"


class Phase(Described):
    """What a query is doing: a pure function of desired and observed (`decide`)."""

    STOPPED = "STOPPED", "Not running, as desired."
    PENDING = (
        "PENDING",
        "Should run; waiting for a start slot, memory, its driver or its checkpoint's lock.",
    )
    STARTING = "STARTING", "Assigned to a driver; no batch committed yet."
    RUNNING = (
        "RUNNING",
        "It has committed a batch or found no new data: its source and plan work.",
    )
    STOPPING = "STOPPING", "Stop requested; the batch in flight is being finished or interrupted."
    COMPLETED = "COMPLETED", "A once or availableNow query that has read all available data."
    BACKOFF = "BACKOFF", "Failed; waiting for the next attempt."
    ON_HOLD = (
        "ON_HOLD",
        "One batch failed with the same error up to the poison limit (a retry probe tries again "
        "from time to time), or starting the query kills the driver (an operator must start it).",
    )
    FAILED = "FAILED", "Failed in a way that a restart cannot fix; waits for an operator."
    UNREACHABLE = (
        "UNREACHABLE",
        "Its host is not responding. It may still run there, so it is not started elsewhere.",
    )

    @property
    def label(self) -> str:
        """Return the word that pages show."""
        return self.value.replace("_", " ").capitalize()


#: Phases in which a driver may be executing batches.
LIVE_PHASES = frozenset({Phase.STARTING, Phase.RUNNING, Phase.STOPPING, Phase.UNREACHABLE})
#: Phases in which health is determined.
JUDGED_PHASES = frozenset({Phase.STARTING, Phase.RUNNING})
#: Phases of a query that ended as intended.
STOPPED_PHASES = frozenset({Phase.STOPPED, Phase.COMPLETED})
#: Phases at rest: nothing changes until an operator acts.
RESTING_PHASES = STOPPED_PHASES | {Phase.FAILED}
#: Phases of a failed query that starts only by an operator or the next retry probe.
BLOCKED_PHASES = frozenset({Phase.ON_HOLD, Phase.FAILED})
#: Phases after a failure: nothing runs, and a start tries again immediately.
FAILED_PHASES = BLOCKED_PHASES | {Phase.BACKOFF}
#: Phases in which a restart would have nothing to stop.
DOWN_PHASES = STOPPED_PHASES | FAILED_PHASES
#: Phases that lists show first.
TROUBLED_PHASES = FAILED_PHASES | {Phase.UNREACHABLE}


class RestartBlock(StrEnum):
    """Why supervision does not restart automatically."""

    NONE = ""
    ON_HOLD = "ON_HOLD"
    FAILED = "FAILED"


class DriverKind(StrEnum):
    """What a driver process is for."""

    SERVICE = "SERVICE"
    STANDBY = "STANDBY"  # has a session and no runs; becomes a SERVICE when it takes over
    PROBE = "PROBE"
    STORAGE = "STORAGE"  # serves Hadoop's file systems to the control plane


class DriverState(StrEnum):
    """The state of a driver process."""

    STARTING = "STARTING"
    LIVE = "LIVE"
    STOPPING = "STOPPING"
    ENDED = "ENDED"
    FENCED = "FENCED"


#: Kinds of drivers whose folders are in their application's own folder, numbered by epoch.
DISPATCHED_KINDS = frozenset({DriverKind.SERVICE, DriverKind.STANDBY})

#: States of drivers that occupy their application's single place.
OPEN_DRIVER_STATES = frozenset({DriverState.STARTING, DriverState.LIVE, DriverState.STOPPING})


class RunOutcome(StrEnum):
    """How a run ended; empty while it is open."""

    OPEN = ""
    STOPPED = "STOPPED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    REFUSED = "REFUSED"
    DRIVER_ENDED = "DRIVER_ENDED"


class Candidacy(Described):
    """What a run was doing when its driver died; empty if nothing that could have killed it."""

    NONE = ""
    STARTING = "STARTING", "starting, no batch committed yet"
    BATCH = "BATCH", "a batch in flight"
    UNKNOWN = "UNKNOWN", "unknown whether a batch was in flight"


#: Outcomes of runs in which the query itself failed, with its own error.
FAILED_OUTCOMES = frozenset({RunOutcome.FAILED, RunOutcome.REFUSED})
#: Outcomes of runs that ended badly, either with their driver or on their own.
BAD_OUTCOMES = FAILED_OUTCOMES | {RunOutcome.DRIVER_ENDED}


class Policy(StrEnum):
    """What a failure's category means for restarts (`restart.py`)."""

    RETRY = "RETRY"
    LIMITED = "LIMITED"
    POISON = "POISON"
    FATAL = "FATAL"


class Verdict(StrEnum):
    """Health of a query that Spark has started (`health.py`)."""

    PROGRESSING = "PROGRESSING"
    IDLE = "IDLE"
    CATCHING_UP = "CATCHING_UP"
    LAGGING = "LAGGING"
    STALLED = "STALLED"
    QUERY_MISSING = "QUERY_MISSING"
    NO_TELEMETRY = "NO_TELEMETRY"
    WAITING = "WAITING"


#: Verdicts that lists show first.
TROUBLED_VERDICTS = frozenset(
    {Verdict.LAGGING, Verdict.STALLED, Verdict.QUERY_MISSING, Verdict.NO_TELEMETRY}
)

#: Verdicts for a query that is not reading anything now: its last rates are outdated.
QUIET_VERDICTS = frozenset({Verdict.IDLE, Verdict.WAITING})


class GroupStatus(StrEnum):
    """Whether a group of failures has been dealt with."""

    OPEN = "OPEN"
    RESOLVED = "RESOLVED"


class Verb(StrEnum):
    """What a user or CI can request."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"
    SNAPSHOT = "snapshot"
    CLONE = "clone"
    REWIND = "rewind"
    RESET = "reset"
    GO_ON = "go-on"  # accept lost source data and continue with what is left
    ASYNC_OFF = "async-off"  # turn off async progress tracking safely
    PREFLIGHT = "preflight"
    XRAY = "x-ray"
    RECORDS = "records"  # show what a batch read
    START_MANY = "start-many"  # many queries in one operation, with an outcome for each
    STOP_MANY = "stop-many"
    RESTART_MANY = "restart-many"
    DECLARE_GONE = "declare-host-gone"  # its driver there counts as dead
    INSTALL = "install"  # of earlier releases: Spark or a connector, by the worker of a host
    PRUNE = "prune"  # stop and delete what an owner's files no longer contain


#: Verbs that only change the desired state; they are done when their generation is reached.
PLAIN_VERBS = frozenset({Verb.START, Verb.STOP, Verb.RESTART})
#: Verbs for many queries -> what is requested of each query.
MANY_VERBS = {
    Verb.START_MANY: Verb.START,
    Verb.STOP_MANY: Verb.STOP,
    Verb.RESTART_MANY: Verb.RESTART,
    Verb.PRUNE: Verb.STOP,
}
#: Verbs that only read the checkpoint: a start or stop at the same time does no harm.
READING_VERBS = frozenset({Verb.SNAPSHOT, Verb.CLONE, Verb.PREFLIGHT, Verb.XRAY, Verb.RECORDS})


#: Verbs with steps that also work for a script's query, because they do not need a definition.
SCRIPT_VERBS = frozenset({Verb.SNAPSHOT, Verb.REWIND, Verb.XRAY})


class StepState(StrEnum):
    """The state of one step of an operation."""

    TODO = "TODO"
    DOING = "DOING"
    DONE = "DONE"
    FAILED = "FAILED"


class OperationOutcome(StrEnum):
    """How an operation ended; empty while it is open."""

    OPEN = ""
    DONE = "DONE"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"


class Completion(StrEnum):
    """How the work that a start or restart of one query requested has ended."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"  # it waits for an operator or a retry probe
    STOPPED = "STOPPED"
    SUPERSEDED = "SUPERSEDED"  # by a later request, before it had completed


#: Outcomes of an operation that is running or has succeeded.
GOOD_OPERATIONS = frozenset({OperationOutcome.OPEN, OperationOutcome.DONE})
#: Outcomes of an operation that failed, excluding those that were replaced or cancelled.
FAILED_OPERATIONS = frozenset({OperationOutcome.FAILED, OperationOutcome.TIMED_OUT})


class LossKind(StrEnum):
    """How a query lost records."""

    RETENTION = "retention"  # deleted at the source before they were read
    SKIPPED = "skipped"  # Spark skipped the gap silently (failOnDataLoss=false)
    LATE = "late"  # dropped behind the watermark
    RECREATED = "recreated"  # records of a topic that was deleted and recreated
    CORRECTED = "corrected"  # not lost after all: reverts another entry in the ledger


class Reason(StrEnum):
    """Why a phase or a driver is in its state, as a code; `reasons.py` has the phrases."""

    NONE = ""
    NEVER_STARTED = "NEVER_STARTED"
    ASKED_START = "ASKED_START"
    ASKED_STOP = "ASKED_STOP"
    ASKED_RESTART = "ASKED_RESTART"
    WAITS_SLOT = "WAITS_SLOT"
    WAITS_MEMORY = "WAITS_MEMORY"
    WAITS_CODE = "WAITS_CODE"
    WAITS_CLASSES = "WAITS_CLASSES"
    WAITS_DRIVER = "WAITS_DRIVER"
    WAITS_LOCK = "WAITS_LOCK"
    WAITS_COMMIT = "WAITS_COMMIT"
    WAITS_SOURCE = "WAITS_SOURCE"
    WAITS_EXECUTOR = "WAITS_EXECUTOR"
    WAITS_THREAD = "WAITS_THREAD"
    COMMITTED = "COMMITTED"
    IDLE = "IDLE"
    STUCK = "STUCK"
    HANGS = "HANGS"
    STOPPED = "STOPPED"
    COMPLETED = "COMPLETED"
    FAILED_RETRY = "FAILED_RETRY"
    FAILED_POISON = "FAILED_POISON"
    FAILED_REPEATED = "FAILED_REPEATED"
    FAILED_FATAL = "FAILED_FATAL"
    DRIVER_DIED = "DRIVER_DIED"
    HOST_SILENT = "HOST_SILENT"
    HOST_GONE = "HOST_GONE"
    RETRY_DUE = "RETRY_DUE"
    KILLS_DRIVER = "KILLS_DRIVER"
    WAITS_TURN = "WAITS_TURN"
    REGRESSED = "REGRESSED"
    STALLED = "STALLED"
    PROBE = "PROBE"
    PROBED = "PROBED"
    PROBE_FAILED = "PROBE_FAILED"
    ARCHIVED = "ARCHIVED"
    REWOUND = "REWOUND"
    RESET = "RESET"
    LAUNCHED = "LAUNCHED"
    STANDS_BY = "STANDS_BY"
    TOOK_OVER = "TOOK_OVER"
    GIVEN_UP = "GIVEN_UP"
    NOT_LAUNCHED = "NOT_LAUNCHED"
    NOT_WANTED = "NOT_WANTED"
    REPLACED = "REPLACED"
    SHUTDOWN = "SHUTDOWN"
    RESUMED = "RESUMED"
    FENCED = "FENCED"
    FAILURE_SCOPE = "FAILURE_SCOPE"
    START_TIMED_OUT = "START_TIMED_OUT"
    SESSION_FAILED = "SESSION_FAILED"
    SCRIPT_FAILED = "SCRIPT_FAILED"
    SCRIPT_ENDED = "SCRIPT_ENDED"
    SCRIPT_ASKS = "SCRIPT_ASKS"
    EXECUTOR_CAME = "EXECUTOR_CAME"
    EXECUTOR_LOST = "EXECUTOR_LOST"
    SCRIPT_STARTED = "SCRIPT_STARTED"
    SCRIPT_DROPPED = "SCRIPT_DROPPED"
    SAME_QUERY = "SAME_QUERY"
    OTHER_QUERY = "OTHER_QUERY"
    OTHER = "OTHER"  # a text from another release

    @classmethod
    def _missing_(cls, value: object) -> "Reason":
        return cls.OTHER


#: Reasons for a query of which something in its driver does not end: it ends only with the driver.
HANGING_REASONS = frozenset({Reason.STUCK, Reason.WAITS_THREAD})
#: Reasons for a failed driver: its queries are waiting for the next one.
DRIVER_FAILURES = frozenset(
    {
        Reason.DRIVER_DIED,
        Reason.START_TIMED_OUT,
        Reason.SESSION_FAILED,
        Reason.SCRIPT_FAILED,
    }
)


def verbs_of(desired: str, phase: str, reason: str = "") -> list[str]:
    """Return the verbs that would change something for this desired state, phase and its reason.

    "stop-now" is a stop that interrupts one in progress. "end-driver" is there if a thread does
    not end: only the end of its driver frees the query.
    """
    ends = ["end-driver"] if reason in HANGING_REASONS else []
    if desired != Desired.RUNNING:
        return ["start"] if phase in STOPPED_PHASES else ["start", "stop-now", *ends]
    if ends:
        return ["stop", *ends]
    return ["start", "stop"] if phase in FAILED_PHASES else ["stop", "restart"]
