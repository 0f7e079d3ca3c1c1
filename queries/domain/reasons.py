"""Turn the codes of reasons and details into the phrases and sentences that users read.

A `Reason` says why something is in its state; the `Because` next to it describes the current
situation, as a code with values. Rows store the codes and decisions compare them; only the pages
and the API look up the words.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Any, Self

from queries.domain.states import Reason

#: Users' requests, worded to follow the user's name in the audit log.
ACTS: dict[str, str] = {
    Reason.ASKED_START: "started",
    Reason.ASKED_STOP: "stopped",
    Reason.ASKED_RESTART: "restarted",
}

#: Each reason as shown by the pages and the API.
PHRASES: dict[Reason, str] = {
    Reason.NONE: "",
    Reason.NEVER_STARTED: "never started",
    Reason.ASKED_START: "start requested",
    Reason.ASKED_STOP: "stop requested",
    Reason.ASKED_RESTART: "restart requested",
    Reason.WAITS_SLOT: "waiting for a start slot",
    Reason.WAITS_MEMORY: "waiting for memory",
    Reason.WAITS_CODE: "waiting for its code",
    Reason.WAITS_CLASSES: "waiting for Headgate's Java classes",
    Reason.WAITS_DRIVER: "waiting for its driver",
    Reason.WAITS_LOCK: "waiting for the checkpoint's lock",
    Reason.WAITS_COMMIT: "waiting for its first commit",
    Reason.WAITS_SOURCE: "source not reachable",
    Reason.WAITS_EXECUTOR: "waiting for an executor",
    Reason.WAITS_THREAD: "waiting for its earlier run to end",
    Reason.COMMITTED: "first commit",
    Reason.IDLE: "idle: nothing to read",
    Reason.STUCK: "the stop hangs",
    Reason.HANGS: "one of its runs does not end",
    Reason.STOPPED: "stopped",
    Reason.COMPLETED: "read all available data",
    Reason.FAILED_RETRY: "failed; will be retried",
    Reason.FAILED_POISON: "same error on the same batch again",
    Reason.FAILED_REPEATED: "same error again, with no batch in between",
    Reason.FAILED_FATAL: "cannot be fixed by a restart",
    Reason.DRIVER_DIED: "its driver died",
    Reason.HOST_SILENT: "its host is not responding",
    Reason.HOST_GONE: "its host was declared gone",
    Reason.RETRY_DUE: "retry due",
    Reason.KILLS_DRIVER: "starting it kills the driver",
    Reason.WAITS_TURN: "waiting for its turn to start",
    Reason.REGRESSED: "failed again after it was resolved",
    Reason.STALLED: "stalled; restarted by its policy",
    Reason.PROBE: "retry probe of a query on hold",
    Reason.PROBED: "probe driver",
    Reason.PROBE_FAILED: "its retry probe failed",
    Reason.ARCHIVED: "deleted",
    Reason.REWOUND: "rewound to an earlier batch",
    Reason.RESET: "reset to another start position",
    Reason.LAUNCHED: "launched",
    Reason.STANDS_BY: "standby driver",
    Reason.TOOK_OVER: "a standby driver took over",
    Reason.GIVEN_UP: "ended, because another driver needs its memory",
    Reason.NOT_LAUNCHED: "could not be launched",
    Reason.NOT_WANTED: "no longer needed",
    Reason.REPLACED: "replaced by a new driver",
    Reason.SHUTDOWN: "installation stopped",
    Reason.RESUMED: "installation started again",
    Reason.FENCED: "a later epoch took over",
    Reason.FAILURE_SCOPE: "a failure ends the whole application",
    Reason.START_TIMED_OUT: "did not start in time",
    Reason.SESSION_FAILED: "its driver could not start Spark",
    Reason.SCRIPT_FAILED: "its script failed",
    Reason.SCRIPT_ENDED: "the script has ended",
    Reason.SCRIPT_ASKS: "the script waits for an answer",
    Reason.EXECUTOR_CAME: "executor added",
    Reason.EXECUTOR_LOST: "executor lost",
    Reason.SCRIPT_STARTED: "started by its script",
    Reason.SCRIPT_DROPPED: "its script no longer starts it",
    Reason.SAME_QUERY: "the same query under a new name",
    Reason.OTHER_QUERY: "another query",
    Reason.OTHER: "unknown",
}


def phrase(reason: str) -> str:
    """Return a reason's phrase; any string that is not a reason code is returned unchanged."""
    return PHRASES[Reason[reason]] if reason in Reason.__members__ else reason


@unique
class Detail(Enum):
    """What is happening or what went wrong: a member's name is the code, its value the sentence."""

    NOTHING = ""
    # phases of a query
    GIVEN = "The query is assigned to a driver."
    HOST_SILENT = "Its host is not responding; the query may still run."
    LOST_ON = (
        "Host {host} is not responding; the query may still run there. "
        "If the host is gone for good, declare it gone."
    )
    WAITS_HOST = (
        "Its checkpoint is on host {host}, which is not responding; the query will start when "
        "the host is back. Reset it to start on another host without its state."
    )
    HOST_AWAY = (
        "Host {host} has not responded since {since} UTC. The {verb} takes effect once it is back, "
        "or is declared gone."
    )
    WORKER_SLOW = (
        "The worker on host {host} is slow or has stopped; its last heartbeat was at {since} UTC. "
        "The {verb} takes effect as soon as it works again."
    )
    STOP_TIMED_OUT = (
        "Its stop timed out: one of its threads in the driver does not end, so its checkpoint "
        "stays locked. Wait for that thread to end, or restart the application, which also "
        "restarts {others}."
    )
    START_HANGS = (
        "In this driver, a thread that does not end is still building the query and holds its "
        "checkpoint. Restart the application to get a new driver; this also restarts {others}."
    )
    HANG_ENDING = "One of its threads does not end; its driver is being stopped."
    NO_PROGRESS = "It made no progress and is being restarted."
    START_STUCK = (
        "Its start did not advance for {seconds} s; it is being ended and will be retried."
    )
    DRIVER_STUCK = (
        "Its driver's start did not advance for {seconds} s; the driver is being stopped, and the "
        "start will be retried."
    )
    BUSY = "{about} This host was busy: {figure}."
    IS_BUSY = "{about} This host is busy, so this takes longer than usual."
    START_LATE = "It did not start within {seconds} s; it is being ended and will be retried."
    DRIVER_LATE = (
        "Its driver was not ready within {seconds} s; the driver is being stopped, and the start "
        "will be retried."
    )
    BATCH_ENDING = "The batch in flight is being finished or interrupted."
    STARTS_AFTER = "It restarts once it has stopped."
    SESSION_STARTING = "Its driver's Spark session is starting."
    POD_STARTS = "Its driver's pod is being started: Kubernetes assigns a node and loads the image."
    POD_WAITS = "Its driver's pod has not started. {about}"
    FORMER_MAY_RUN = (
        "It has taken over the checkpoint from another installation, host or pod. The driver there "
        "may write until {until} UTC; the query starts then."
    )
    QUERY_BUILDING = "Spark is building the query."
    SOURCE_SILENT = (
        "Source not reachable since {since} UTC. Spark does not report this; the query "
        "continues automatically once the source responds."
    )
    NO_CORES = "No {what} since {since} UTC. Does the query have one core per source partition?"
    NO_EXECUTOR = "{about}"
    UNPROVEN = "Spark has started it; it has not committed a batch or had an idle trigger yet."
    ALL_READ = "It has read all available data."
    # planned runs of a schedule
    OVERLAPPED = "The run before it had not ended; it was {state}."
    START_REFUSED = "The start was rejected: {about}"
    RUN_FAILED = "Its run failed ({why}). {about}"
    OVER_LIMIT = "Stopped at its schedule's limit of {seconds} s."
    WITH_INSTALLATION = "It starts with the installation."
    SLOTS_TAKEN = "{starting} of {limit} drivers are starting on this host."
    MEMORY_TAKEN = "It needs {needed} MB; other drivers use {used} of {budget} MB."
    CODE_COMING = (
        "Its code is being fetched from git, or its packages are being installed, on this host."
    )
    CLASSES_COMING = (
        "Headgate's Java classes are being compiled on this host, which takes seconds, or minutes "
        "on a busy host. Its driver starts then."
    )
    CLASSES_MISSING = (
        "A checkpoint of the application is not on a local disk. Headgate's Java classes keep a "
        "second driver out of it, and this host does not have them: {why}. Headgate compiles them "
        "and starts the driver then."
    )
    DRIVER_LEAVING = "Waiting for the previous driver to exit."
    TURN = (
        "Its driver has died {deaths} times in a row. Queries are now started one at a time to "
        "find the one that kills it; {name} is starting."
    )
    TURN_AFTER_DRIVER = (
        "Its driver has died {deaths} times in a row. Queries will be started one at a time to "
        "find the one that kills it; the driver is starting."
    )
    STEPS_ON = (
        "Its files are on host {host}, which is not responding; it continues when the host is back."
    )
    STEPS_SLOW = (
        "The worker on host {host} is slow or has stopped; this continues as soon as it works "
        "again."
    )
    # scripts
    SCRIPT_RUNS = "The script is running."
    SCRIPT_RETURNED = "The script has returned; the queries that it started continue."
    SCRIPT_DONE = "The script ended with exit code 0, and none of its queries is running."
    SCRIPT_ENDING = "Its queries stop after their batches in flight; then the script ends."
    SCRIPT_ASKS = "The script needs an answer about its queries; its driver is ending."
    DRIVER_ENDING = "Its driver is ending."
    SCRIPT_RESTARTS = "It runs again in a new driver once this one has ended."
    SCRIPT_STARTS = "The script has not started it yet."
    SCRIPT_STOPPED = "The script has stopped it."
    SCRIPT_MAY_RETRY = "{title}. The script may start it again; otherwise the application restarts."
    # failures, worded by their diagnosis
    KILLS_DRIVER = (
        "The driver died {deaths} times in a row. Last time, only this query was starting or "
        "running its first batch. {exit}."
    )
    FAILURE = "{title}. {way_out}"
    POISONED = (
        "The same error occurred on batch {batch} until the poison limit of {limit} was "
        "reached. {title}. {way_out}"
    )
    POISONS_EACH = (
        "The same error occurred on consecutive batches until the poison limit of {limit} was "
        "reached. {title}. {way_out}"
    )
    REPEATED = (
        "The same error occurred {limit} times in a row, with no batch in between. {title}. "
        "{way_out}"
    )
    DRIVER_FAILURE = "{title}"
    NOT_LAUNCHED = "{refusal}"
    # changes
    GROUP = "{group}"  # the title of a group of failures
    EXECUTOR = "executor {executor} on {address}"
    EXECUTOR_REMOVED = "executor {executor} on {address}: {why}"
    PROBE_FOR = "{verb} of {query}"
    TO_BATCH = "to batch {batch}"
    TO_START = "to {start}"
    POOL = "pool {pool}"
    SECRET = "{secret} for {hosts}"
    DATA_ROOT = "allowed path {root}"
    LABELS = "labels"
    AS_BEFORE = "as revision {revision}"
    SQL_CHECKED_LATER = "SQL of revision {revision} checked; it was saved unchecked"
    SQL_REFUSED_LATER = "SQL of revision {revision}, saved unchecked by {author}, {problem}"
    TEAM = "team"
    # operations
    TRIED_AGAIN = "{about} The next attempt was set for {at} UTC."
    TRIED_AGAIN_NOW = "{about} It was retried immediately."
    DELETED_BY = "deleted by {actor}"
    CANCELLED_BY = "cancelled by {actor}"
    SUPERSEDED_BY = "{verb} by {actor}"
    WAITED = "{phase}: {about}"
    REASON = "{reason}"  # a reason, if nothing more is known about it
    REFUSED = "{message}"  # one of our errors, with its code
    STEP = "{note}"  # a step's note
    # deploys
    AFTER_OTHERS = "Its wave comes after that of {names}, because of the lineage."
    IN_A_CIRCLE = "{names} read each other's data, so the lineage gives them no order."
    QUERY_FAILED = "{query} failed: {about}"
    NOT_GOOD_IN_TIME = "{query} did not meet the conditions within {minutes} min: {about}"
    STOPPED_MEANWHILE = "{query} was stopped in the meantime."
    CHANGED_MEANWHILE = "{query} was changed or started on another revision in the meantime."
    AWAITS_COMMIT = "It has not committed a batch or had an idle trigger yet. {about}"
    AWAITS_BATCHES = "{seen} of {wanted} batches have committed."
    AWAITS_MINUTES = "It has been running for {seen} of {wanted} minutes."
    AWAITS_LAG = "It is {lag} records behind its sources, compared with {before} before the deploy."
    AWAITS_LOOK = (
        "Its lag is not known from the brokers yet; before the deploy it was {before} records."
    )
    OPERATION_FAILED = "The {verb} of {query} failed: {about}"
    NOT_TRIED_BACK = (
        "It is not proven that revision {revision} of {query} can continue from the current "
        "state: {about}"
    )
    NOT_BACK = "{why} Not everything could be rolled back: {about}"
    AWAITS_DRIVER = "Its driver is not ready yet. {about}"
    AWAITS_QUERIES = (
        "The script has started queries that have not committed a batch or been idle yet: "
        "{queries}."
    )
    AWAITS_FIRST_QUERY = "The script has not started any query yet."
    AWAITS_ANY_QUERY = "Its driver is ready; none of its queries has committed a batch yet."
    JUDGED_RUNS = "Evaluated from its own runs since the restart."
    JUDGED_SCRIPT = "Evaluated from its script in driver {driver} and each query that it started."
    JUDGED_SCRIPT_QUERIES = "Evaluated from its script in driver {driver}, which started {queries}."
    JUDGED_DRIVER = "Evaluated from its driver {driver} and the first of its queries that ran."
    JUDGED_FAILURES = "It was not running before, so only new failures count against it."
    NOT_JUDGED = "The script has not started it since the restart, so it is not evaluated."
    OTHER = "{text}"  # a code of another release


@dataclass(frozen=True, slots=True)
class Because:
    """The current situation, as a code with the values in its sentence."""

    code: Detail = Detail.NOTHING
    params: dict[str, Any] = field(default_factory=dict)  # JSON; a dict in it is a `Because`

    def __bool__(self) -> bool:
        """Return whether there is anything to report."""
        return self.code is not Detail.NOTHING

    def __str__(self) -> str:
        """Return the sentence that pages and the API show."""
        return self.text

    @property
    def text(self) -> str:
        """Return the sentence, with a dash for each missing value."""
        shown = {key: _shown(key, value) for key, value in self.params.items()}
        return self.code.value.format_map(defaultdict(lambda: "–", shown)).strip()

    def as_json(self) -> dict[str, Any]:
        """Return the form stored in rows; {} if there is nothing to report."""
        return {"code": self.code.name, **self.params} if self else {}

    @classmethod
    def of(cls, raw: Any) -> Self:
        """Return what `as_json` wrote; an unknown code from another release is used as its phrase.

        Anything else is shown as stored, so that its row can still be listed.
        """
        if not isinstance(raw, dict):
            return cls(Detail.OTHER, {"text": f"cannot be shown: {str(raw)[:200]}"})
        params = {str(key): value for key, value in raw.items()}
        name = str(params.pop("code", Detail.NOTHING.name))
        if name not in Detail.__members__:
            return cls(Detail.OTHER, {"text": name, **params})
        return cls(Detail[name], params)


NOTHING = Because()


def why(reason: str, detail: Because) -> Because:
    """Return the details of a reason, or the reason itself if there are no details."""
    return detail or Because(Detail.REASON, {"reason": str(reason)})


def noted(note: str) -> Because:
    """Return a step's note as details; `NOTHING` for an empty note."""
    return Because(Detail.STEP, {"note": note}) if note else NOTHING


def waited(phase: str, reason: str, detail: Because) -> Because:
    """Describe what a query is waiting for: its phase and the reason."""
    about = why(reason, detail).as_json()
    return Because(Detail.WAITED, {"phase": str(phase), "about": about})


def _shown(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return Because.of(value).text
    if key == "phase":
        return str(value).replace("_", " ").capitalize()
    return phrase(value) if key == "reason" else str(value)
