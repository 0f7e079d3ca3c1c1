"""Turn the codes of reasons and details into the phrases and sentences that users read.

A `Reason` says why something is in its state; the `Because` next to it says what is going on
now, as a code with its values. Rows store the codes and decisions compare them; only pages and
the API look up the words.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Any, Self

from queries.domain.states import Reason

#: Requests of users, as they follow the user's name in the audit log.
ACTS: dict[str, str] = {
    Reason.ASKED_START: "started",
    Reason.ASKED_STOP: "stopped",
    Reason.ASKED_RESTART: "restarted",
}

#: Each reason as pages and the API write it.
PHRASES: dict[Reason, str] = {
    Reason.NONE: "",
    Reason.NEVER_STARTED: "never started",
    Reason.ASKED_START: "start requested",
    Reason.ASKED_STOP: "stop requested",
    Reason.ASKED_RESTART: "restart requested",
    Reason.WAITS_SLOT: "waiting for a start slot",
    Reason.WAITS_MEMORY: "waiting for memory",
    Reason.WAITS_CODE: "waiting for its code",
    Reason.WAITS_DRIVER: "waiting for its driver",
    Reason.WAITS_LOCK: "waiting for the checkpoint's lock",
    Reason.WAITS_COMMIT: "waiting for its first commit",
    Reason.WAITS_SOURCE: "source not reachable",
    Reason.WAITS_THREAD: "waiting for its earlier run to end",
    Reason.COMMITTED: "first commit",
    Reason.IDLE: "idle: nothing to read",
    Reason.STUCK: "the stop hangs",
    Reason.HANGS: "a run in it does not end",
    Reason.STOPPED: "stopped",
    Reason.COMPLETED: "read all available data",
    Reason.FAILED_RETRY: "failed; will be retried",
    Reason.FAILED_POISON: "same error on the same batch again",
    Reason.FAILED_FATAL: "cannot be fixed by a restart",
    Reason.DRIVER_DIED: "its driver died",
    Reason.HOST_SILENT: "its host does not respond",
    Reason.RETRY_DUE: "retry due",
    Reason.KILLS_DRIVER: "its start ends the driver",
    Reason.WAITS_TURN: "waiting for its turn to start",
    Reason.REGRESSED: "failed again after it was resolved",
    Reason.STALLED: "stalled; restarted by its policy",
    Reason.PROBE: "retry probe of a broken query",
    Reason.PROBED: "probe driver",
    Reason.ARCHIVED: "deleted",
    Reason.REWOUND: "rewound to an earlier batch",
    Reason.RESET: "reset to another start position",
    Reason.LAUNCHED: "launched",
    Reason.NOT_LAUNCHED: "could not be launched",
    Reason.NOT_WANTED: "no query needs it",
    Reason.REPLACED: "replaced by a new driver",
    Reason.SHUTDOWN: "installation stopped",
    Reason.RESUMED: "installation started again",
    Reason.FENCED: "a later epoch took over",
    Reason.FAILURE_SCOPE: "a failure ends the whole application",
    Reason.START_TIMED_OUT: "did not start in time",
    Reason.EXECUTOR_CAME: "executor added",
    Reason.EXECUTOR_LOST: "executor lost",
    Reason.SCRIPT_STARTED: "started by its script",
    Reason.SCRIPT_DROPPED: "its script no longer starts it",
    Reason.SAME_QUERY: "the same query under a new name",
    Reason.OTHER_QUERY: "another query",
    Reason.OTHER: "unknown",
}


def phrase(reason: str) -> str:
    """Return a reason's phrase; a text that is not the code of a reason is returned as it is."""
    return PHRASES[Reason[reason]] if reason in Reason.__members__ else reason


@unique
class Detail(Enum):
    """What is going on, or what went wrong: a member's name is the code, its value the sentence."""

    NOTHING = ""
    # phases of a query
    GIVEN = "The query is assigned to a driver."
    HOST_SILENT = "Its host does not respond; the query may still run."
    LOST_ON = "Host {host} does not respond; the query may still run there."
    WAITS_HOST = (
        "Host {host} does not respond, and its checkpoint is there; "
        "it starts once the host is back."
    )
    # Of rows that older releases wrote: nothing says it now.
    STOP_HANGS = "The stop hangs. Restart the application to end it; its other queries restart too."
    STOP_TIMED_OUT = (
        "Its stop has timed out: a thread of it in the driver does not end, so its checkpoint "
        "stays locked. Wait for that thread, or restart the application; "
        "that restarts {others} too."
    )
    START_HANGS = (
        "It is still being built by a thread of this driver that does not end, and holds its "
        "checkpoint. A fresh driver is the way out: restart the application; that restarts "
        "{others} too."
    )
    HANG_ENDING = "A thread of it does not end; its driver is being ended."
    NO_PROGRESS = "It made no progress; it is restarted."
    BATCH_ENDING = "The batch in flight is being finished or interrupted."
    STARTS_AFTER = "It restarts once it has ended."
    SESSION_STARTING = "Its driver's Spark session is starting."
    QUERY_BUILDING = "Spark is building the query."
    SOURCE_SILENT = (
        "Source not reachable since {since} UTC. Spark does not report it; "
        "the query continues by itself once the source responds."
    )
    NO_CORES = "No {what} since {since} UTC: does it have a core per source partition?"
    UNPROVEN = "Spark has started it; no batch has committed and no idle trigger was seen yet."
    ALL_READ = "It has read all available data."
    WITH_INSTALLATION = "It starts with the installation."
    SLOTS_TAKEN = "{starting} of {limit} drivers are starting on this host."
    MEMORY_TAKEN = "It needs {needed} MB; {used} of {budget} MB are taken by other drivers."
    CODE_COMING = "Its code is fetched from git, or its packages are installed, on this host."
    DRIVER_LEAVING = "Waiting for the previous driver to exit."
    TURN = (
        "Its driver has died {deaths} times in a row. Queries now start one after the other, to "
        "find the one that ends it; {name} is starting."
    )
    TURN_AFTER_DRIVER = (
        "Its driver has died {deaths} times in a row. Queries will start one after the other, to "
        "find the one that ends it; the driver is starting."
    )
    STEPS_ON = "Its files are on host {host}, which does not respond; it goes on once that is back."
    # scripts
    SCRIPT_RUNS = "The script is running."
    SCRIPT_RETURNED = "The script has returned; the queries that it has started go on."
    SCRIPT_DONE = "The script has ended with exit code 0, and nothing that it started runs."
    SCRIPT_ENDING = "Its queries stop after their batches in flight; then the script ends."
    SCRIPT_OVER = "The script has failed, or asks about a query; its driver is ending."
    SCRIPT_RESTARTS = "It runs again in a new driver once this one has ended."
    SCRIPT_STARTS = "The script has not started it yet."
    SCRIPT_STOPPED = "The script has stopped it."
    SCRIPT_MAY_RETRY = "{title}. The script may start it again; otherwise the application restarts."
    # failures, in the words of their diagnosis
    KILLS_DRIVER = (
        "The driver died {deaths} times in a row, and the last time nothing but the start or the "
        "first batch of this query was under way in it. {exit}."
    )
    FAILURE = "{title}. {way_out}"
    POISONED = (
        "The same error on batch {batch} has reached the poison limit of {limit}. "
        "{title}. {way_out}"
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
    DATA_ROOT = "data root {root}"
    LABELS = "labels"
    AS_BEFORE = "as revision {revision}"
    TEAM = "team"
    # operations
    TRIED_AGAIN = "{about} It is tried again at {at} UTC."
    TRIED_AGAIN_NOW = "{about} It is tried again now."
    DELETED_BY = "deleted by {actor}"
    CANCELLED_BY = "cancelled by {actor}"
    SUPERSEDED_BY = "{verb} by {actor}"
    WAITED = "{phase}: {about}"
    REASON = "{reason}"  # a reason of which nothing more is known
    REFUSED = "{message}"  # an error of ours, with its code
    STEP = "{note}"  # the note of a step
    # deploys
    QUERY_FAILED = "{query} failed: {about}"
    NOT_GOOD_IN_TIME = "{query} was not good within {minutes} min: {about}"
    STOPPED_MEANWHILE = "{query} was stopped in the meantime."
    CHANGED_MEANWHILE = "{query} was changed or started on another revision in the meantime."
    AWAITS_COMMIT = "No batch has committed and no idle trigger was seen yet. {about}"
    AWAITS_BATCHES = "{seen} of {wanted} batches have committed."
    AWAITS_MINUTES = "It has run for {seen} of {wanted} minutes."
    AWAITS_LAG = "It is {lag} records behind its sources; before the deploy it was {before}."
    AWAITS_LOOK = (
        "The brokers have not said yet how far behind its sources it is; before the deploy it was "
        "{before} records."
    )
    OPERATION_FAILED = "The {verb} of {query} failed: {about}"
    NOT_TRIED_BACK = (
        "It is not shown that revision {revision} of {query} can go on from the state that is "
        "there now: {about}"
    )
    NOT_BACK = "{why} Not everything could be rolled back: {about}"
    # Of rows that older releases wrote: nothing says it now.
    LEFT_STOPPED = "{query} is new: it is stopped, and not deleted."
    AWAITS_DRIVER = "Its driver is not ready yet. {about}"
    AWAITS_QUERIES = (
        "Of what the script has started, {queries} has neither committed a batch nor found nothing "
        "to read."
    )
    AWAITS_FIRST_QUERY = "The script has not started a query yet."
    AWAITS_ANY_QUERY = "Its driver is ready; none of its queries has committed a batch yet."
    JUDGED_RUNS = "Judged by its own runs since the restart."
    JUDGED_SCRIPT = "Judged by its script in driver {driver}, and by each query that it started."
    JUDGED_SCRIPT_QUERIES = "Judged by its script in driver {driver}, which started {queries}."
    JUDGED_DRIVER = "Judged by its driver {driver}, and by the first of its queries that ran."
    JUDGED_FAILURES = "It did not run before: only a failure that is new counts against it."
    NOT_JUDGED = "The script has not started it since the restart: nothing of it is judged."
    OTHER = "{text}"  # written by an earlier release, or a later one


@dataclass(frozen=True, slots=True)
class Because:
    """What is going on, as a code with the values that its sentence names."""

    code: Detail = Detail.NOTHING
    params: dict[str, Any] = field(default_factory=dict)  # JSON; a dict in it is a `Because`

    def __bool__(self) -> bool:
        """Tell whether there is anything to say."""
        return self.code is not Detail.NOTHING

    def __str__(self) -> str:
        """Return the sentence, as pages and the API show it."""
        return self.text

    @property
    def text(self) -> str:
        """Return the sentence, with a dash for each missing value."""
        shown = {key: _shown(key, value) for key, value in self.params.items()}
        return self.code.value.format_map(defaultdict(lambda: "–", shown)).strip()

    def as_json(self) -> dict[str, Any]:
        """Return the form that rows store; {} for nothing."""
        return {"code": self.code.name, **self.params} if self else {}

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Self:
        """Return what `as_json` wrote; a code of another release is its own text."""
        params = dict(raw)
        name = params.pop("code", Detail.NOTHING.name)
        if name not in Detail.__members__:
            return cls(Detail.OTHER, {"text": name, **params})
        return cls(Detail[name], params)


NOTHING = Because()


def why(reason: str, detail: Because) -> Because:
    """Return what is known beyond a reason, else the reason itself."""
    return detail or Because(Detail.REASON, {"reason": str(reason)})


def waited(phase: str, reason: str, detail: Because) -> Because:
    """Return what is waited for: the phase a query is in, and why."""
    about = why(reason, detail).as_json()
    return Because(Detail.WAITED, {"phase": str(phase), "about": about})


def _shown(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return Because.of(value).text
    if key == "phase":
        return str(value).capitalize()
    return phrase(value) if key == "reason" else str(value)
