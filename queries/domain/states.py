"""The words of the state machine: what is wanted, what is, and what each state means.

Every state explains itself (`label`, `description`) and the named sets below are the only
place where states are grouped, so that a page, a filter and a decision never disagree.
"""

from enum import StrEnum


class Desired(StrEnum):
    """What the operator wants of a query."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"


class StopMode(StrEnum):
    """How a stop treats the batch in flight."""

    GRACEFUL = "graceful"
    NOW = "now"


class Phase(StrEnum):
    """What a query is doing: a pure function of desired and observed (`decide`)."""

    STOPPED = "STOPPED"
    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    COMPLETED = "COMPLETED"
    BACKOFF = "BACKOFF"
    BROKEN = "BROKEN"
    FAILED = "FAILED"
    LOST = "LOST"

    @property
    def label(self) -> str:
        """Return the word that pages show."""
        return self.value.capitalize()

    @property
    def description(self) -> str:
        """Return one sentence that explains the phase to somebody who sees it first."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS: dict[Phase, str] = {
    Phase.STOPPED: "Not running, and not meant to.",
    Phase.PENDING: "Wanted; waits for a start slot, memory, its driver or its checkpoint's lock.",
    Phase.STARTING: "Handed to a driver; no batch committed yet.",
    Phase.RUNNING: "Its source and plan are proven: it has committed, or found nothing to read.",
    Phase.STOPPING: "Asked to stop; the batch in flight is being finished or interrupted.",
    Phase.COMPLETED: "A once or availableNow query that has read all there was.",
    Phase.BACKOFF: "Failed; waits for its next attempt.",
    Phase.BROKEN: "At its poison limit: the same error on one batch; retry probes run at times.",
    Phase.FAILED: "Failed in a way that no restart mends; waits for a person.",
    Phase.LOST: "Its host is silent: it may still run, so nothing else may start it.",
}

#: Phases in which a driver may be executing batches.
LIVE_PHASES = frozenset({Phase.STARTING, Phase.RUNNING, Phase.STOPPING, Phase.LOST})
#: Phases at rest: nothing will change without a person.
RESTING_PHASES = frozenset({Phase.STOPPED, Phase.COMPLETED, Phase.FAILED})
#: Phases that a list puts first.
TROUBLED_PHASES = frozenset({Phase.BACKOFF, Phase.BROKEN, Phase.FAILED, Phase.LOST})


class Hold(StrEnum):
    """Why the ladder of restarts does not go on by itself."""

    NONE = ""
    BROKEN = "BROKEN"
    FAILED = "FAILED"


class DriverKind(StrEnum):
    """What a driver process is for."""

    SERVICE = "SERVICE"
    PROBE = "PROBE"


class DriverState(StrEnum):
    """Where a driver process is in its life."""

    STARTING = "STARTING"
    LIVE = "LIVE"
    STOPPING = "STOPPING"
    ENDED = "ENDED"
    FENCED = "FENCED"


#: Drivers that hold their application's single place.
OPEN_DRIVER_STATES = frozenset({DriverState.STARTING, DriverState.LIVE, DriverState.STOPPING})


class RunOutcome(StrEnum):
    """How a run ended; empty while it has not."""

    OPEN = ""
    STOPPED = "STOPPED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    REFUSED = "REFUSED"
    DRIVER_ENDED = "DRIVER_ENDED"


class Policy(StrEnum):
    """What a failure's category means for restarts (`restart.py`)."""

    RETRY = "RETRY"
    POISON = "POISON"
    FATAL = "FATAL"


class Verdict(StrEnum):
    """Health of a running query (`health.py`)."""

    PROGRESSING = "PROGRESSING"
    IDLE = "IDLE"
    CATCHING_UP = "CATCHING_UP"
    LAGGING = "LAGGING"
    STALLED = "STALLED"
    ZOMBIE = "ZOMBIE"
    BLIND = "BLIND"


#: Verdicts that a list puts first.
TROUBLED_VERDICTS = frozenset({Verdict.LAGGING, Verdict.STALLED, Verdict.ZOMBIE, Verdict.BLIND})


class GroupStatus(StrEnum):
    """Whether a group of failures has been dealt with."""

    OPEN = "OPEN"
    RESOLVED = "RESOLVED"


class Verb(StrEnum):
    """What a person or CI can ask for."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"
    SNAPSHOT = "snapshot"
    CLONE = "clone"
    REWIND = "rewind"
    RESET = "reset"
    GO_ON = "go-on"  # accept lost source data and go on from what is left
    ASYNC_OFF = "async-off"  # the safe way off async progress tracking
    PREFLIGHT = "preflight"
    XRAY = "x-ray"


#: Verbs that are one change of what is wanted, done when its generation is reached.
PLAIN_VERBS = frozenset({Verb.START, Verb.STOP, Verb.RESTART})


class StepState(StrEnum):
    """Where one step of an operation with several is."""

    TODO = "TODO"
    DOING = "DOING"
    DONE = "DONE"
    FAILED = "FAILED"


class OperationOutcome(StrEnum):
    """How an operation ended; empty while it has not."""

    OPEN = ""
    DONE = "DONE"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"


class LossKind(StrEnum):
    """How records were lost to a query."""

    RETENTION = "retention"  # deleted at the source before they were read
    SKIPPED = "skipped"  # Spark went over the gap in silence (failOnDataLoss=false)
    LATE = "late"  # dropped behind the watermark


class Reason(StrEnum):
    """Why a query's phase (or a driver's state) is what it is; the detail is text beside it."""

    NONE = ""
    NEVER_STARTED = "never started"
    ASKED_START = "start requested"
    ASKED_STOP = "stop requested"
    ASKED_RESTART = "restart requested"
    WAITS_SLOT = "waits for a start slot"
    WAITS_MEMORY = "waits for memory"
    WAITS_DRIVER = "waits for its driver"
    WAITS_LOCK = "waits for the checkpoint's lock"
    WAITS_COMMIT = "waits for its first commit"
    WAITS_SOURCE = "source not reachable"
    COMMITTED = "first commit"
    IDLE = "idle: nothing to read"
    STOPPING = "finishes the batch in flight"
    STUCK = "the stop hangs"
    STOPPED = "stopped"
    COMPLETED = "read all there was"
    ENDED_UNASKED = "ended without being asked"
    FAILED_RETRY = "failed; will be retried"
    FAILED_POISON = "same error on the same batch again"
    FAILED_FATAL = "cannot be mended by a restart"
    DRIVER_DIED = "its driver died"
    HOST_SILENT = "its host is silent"
    RETRY_DUE = "retry due"
    REGRESSED = "failed again after it was resolved"
    STALLED = "stalled; restarted as its policy says"
    PROBE = "probe of a broken query"
    PROBED = "a short-lived Spark of its own"
    ARCHIVED = "deleted"
    REWOUND = "rewound to an earlier batch"
    RESET = "reset to another start"
    LAUNCHED = "launched"
    NOT_LAUNCHED = "could not be launched"
    NOT_WANTED = "no query wants it"
    REPLACED = "replaced by a fresh driver"
    SHUTDOWN = "installation stopped"
    RESUMED = "installation started again"
    FENCED = "a later epoch took over"
    FAILURE_SCOPE = "a failure ends the whole application"
    START_TIMED_OUT = "did not start in time"
    EXECUTOR_CAME = "an executor came"
    EXECUTOR_LOST = "an executor was lost"
