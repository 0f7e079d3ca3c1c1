"""Failure categories with their restart policy and advice, and the wording for each kind of
subject.

What can be done depends on who writes the definition: Headgate edits, starts and resets a SQL
query, but a script controls its own queries. So remedies refer to actions by placeholders
(`{start}`), and `fitted` fills in the action that the API accepts for the failed subject.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from queries.domain.states import Policy


class Category(StrEnum):
    """The kind of a failure; each has one restart policy."""

    policy: Policy

    def __new__(cls, words: str, policy: Policy = Policy.RETRY) -> Self:
        """Return a member whose value is only its words."""
        category = str.__new__(cls, words)
        category._value_, category.policy = words, policy
        return category

    CONNECTION = "connection"
    STORAGE = "storage"
    CREDENTIALS = "credentials rejected"  # by a store; Kafka's are configuration
    CAPACITY = "capacity"
    MEMORY = "memory"
    PROCESS = "process"
    LOCK = "lock held"
    EARLIER_RUN = "earlier run"
    FENCED = "fenced"
    ENDED = "ended unasked"
    SPARK_FAULT = "fault in Spark"
    EVOLVED = "source schema changed"
    UNKNOWN = "unknown"
    DATA = "data", Policy.POISON
    USER_CODE = "user code", Policy.POISON
    CORRUPTION = "corruption", Policy.POISON
    CONFIGURATION = "configuration", Policy.FATAL
    PLAN = "query plan", Policy.FATAL
    SOURCE_LOST = "source data lost", Policy.FATAL
    INCOMPATIBLE = "checkpoint incompatible", Policy.FATAL
    DAMAGED = "checkpoint damaged", Policy.FATAL
    OWNERSHIP = "checkpoint ownership", Policy.FATAL
    CULPRIT = "ends its driver", Policy.FATAL


class Remedy(StrEnum):
    """A fix that Headgate itself offers, if the rule knows which one applies."""

    NONE = "none"
    TO_EARLIEST = "to earliest"  # reset the query: no records need to be skipped
    ASYNC_OFF = "async off"  # turn async progress tracking off safely


@dataclass(frozen=True, slots=True)
class FailureAdvice:
    """What a failure means and what to do about it; `way_out` has placeholders from `subjects`."""

    category: Category
    meaning: str
    way_out: str
    remedy: Remedy = Remedy.NONE
    any_batch: bool = False  # all batches fail so, and commit: the poison limit counts them all
    policy: Policy | None = None  # None: its category's


#: Added only to failures within a batch: before any batch there is nothing to read again.
AGAIN = ": the same batch is read again"

#: How a failure is retried that new credentials end (`supervision.defined.run_ended`).
RETRIES = (
    "The query retries, in a new driver if no other query runs in its driver: each driver reads "
    "secrets, tickets and tokens once."
)

#: The advice for each category when no rule is more specific. Actions are placeholders: `subjects`.
GENERAL: dict[Category, FailureAdvice] = {
    category: FailureAdvice(category, meaning, way_out)
    for category, (meaning, way_out) in {
        Category.CONNECTION: (
            "A service that the query uses did not respond, or refused the connection.",
            "No action is needed if the service recovers: the query keeps retrying. Otherwise, "
            "check the address, credentials and network of that service.",
        ),
        Category.STORAGE: (
            "Reading or writing a file failed, possibly only for a moment.",
            "The query retries. If the failure persists, check disk space, permissions and the "
            "storage.",
        ),
        Category.CREDENTIALS: (
            "The store rejected the keys, or they do not give access to this path.",
            f"{RETRIES} Correct the secrets that the application's configuration refers to, such "
            "as fs.s3a.access.key and fs.s3a.secret.key, or have them given access to the path.",
        ),
        Category.CAPACITY: (
            "There were not enough cores or memory at that moment.",
            "The query retries. Give the application more cores or memory, or move some of its "
            "queries to another application.",
        ),
        Category.MEMORY: (
            "The driver ran out of memory.",
            "The driver is restarted. Increase the application's memory, limit the size of a "
            "batch (maxFilesPerTrigger, maxOffsetsPerTrigger), or add a watermark so that old "
            "state is dropped.",
        ),
        Category.PROCESS: (
            "The driver process ended unexpectedly.",
            "The driver is restarted from the checkpoint. See the end of the driver's log.",
        ),
        Category.LOCK: (
            "Another process on this host holds the checkpoint.",
            "The query waits and retries. End the process that holds the checkpoint if it "
            "should not be running.",
        ),
        Category.EARLIER_RUN: (
            "An earlier run in the same driver has not ended and may still write to the "
            "checkpoint.",
            "The query waits and retries. If that run does not end, restart the application "
            "to get a new driver; its other queries restart too.",
        ),
        Category.FENCED: (
            "A later start of this query has taken over its checkpoint.",
            "No action is needed: the later run continues.",
        ),
        Category.ENDED: (
            "The query ended cleanly although nobody stopped it.",
            "The query is restarted. Check that {code} does not call stop().",
        ),
        Category.SPARK_FAULT: (
            "A check inside Spark failed. This is a bug in Spark, not in the query.",
            "The query is retried. If the check fails again on the same batch, restart the "
            "application. If that does not help, report the stack trace to the Spark developers.",
        ),
        Category.EVOLVED: (
            "The schema of the source table has changed. The source has recorded the new "
            "schema and needs a restart to use it.",
            "No action is needed: the query is restarted immediately, up to three times, as Delta "
            "requires. If it keeps failing, the part of the query that the root cause names does "
            "not match the new schema.",
        ),
        Category.UNKNOWN: (
            "Headgate does not recognize this failure.",
            "The query retries. Read the root cause and the end of the log.",
        ),
        Category.DATA: (
            "The query cannot process a row in the batch.",
            "{edit} to handle such rows (try_divide, try_cast, nullif, a filter), then "
            f"{{restart}}{AGAIN}.",
        ),
        Category.USER_CODE: (
            "The query's own code raised an error.",
            f"Read the traceback, correct {{code}}, then {{restart}}{AGAIN}.",
        ),
        Category.CORRUPTION: (
            "A checkpoint file does not contain what was written to it.",
            "If this happens again on the same batch, check the disk; then rewind to an earlier "
            "batch, restore the checkpoint from a backup, or {renew}.",
        ),
        Category.CONFIGURATION: (
            "Spark rejects this combination of source, sink, trigger and options.",
            "{edit}, then {start}.",
        ),
        Category.PLAN: (
            "Spark cannot plan this query: a name, a type or an operation is wrong.",
            "Change {code}, then {start}.",
        ),
        Category.SOURCE_LOST: (
            "Rows that the query has not read yet are no longer in the source.",
            "They cannot be recovered from the source. {go_on}",
        ),
        Category.INCOMPATIBLE: (
            "The query was changed in a way that its checkpoint does not allow.",
            "Go back to the previous definition, then {start}; or {renew}.",
        ),
        Category.DAMAGED: (
            "Files that the checkpoint needs are missing or cannot be read.",
            "Rewind to an earlier batch, restore the files from a backup, or {renew}.",
        ),
        Category.OWNERSHIP: (
            "Another process is writing to this checkpoint.",
            "Find the other process (a notebook, another installation) and end it, then {start}. "
            "Both may have executed the same batch.",
        ),
        Category.CULPRIT: (
            "This query kills its driver process, and all other queries in it: by calling "
            "os._exit, by a crash in native code, or by using more memory than the driver has.",
            "The end of the driver's log may show where. Fix the cause, or move the query to a "
            "separate application; then {start}. Until then, the other queries run without it.",
        ),
    }.items()
}


@dataclass(frozen=True, slots=True)
class FailureRule:
    """Advice for failures that match `pattern` (a regular expression)."""

    pattern: str
    advice: FailureAdvice
    text: str = ""  # pattern searched for anywhere in the failure's text; "": any text


def rule(
    pattern: str,
    category: Category,
    meaning: str = "",
    way_out: str = "",
    *,
    text: str = "",
    policy: Policy | None = None,
) -> FailureRule:
    """Return a rule; without its own wording or policy, it uses its category's."""
    general = GENERAL[category]
    advice = FailureAdvice(
        category, meaning or general.meaning, way_out or general.way_out, policy=policy
    )
    return FailureRule(pattern, advice, text)


class FailureSubject(StrEnum):
    """What failed, as far as the remedy depends on it."""

    SQL = "sql"  # a SQL query over named sources
    FUNCTION = "function"  # a query built by a Python function
    SCRIPT = "script"  # a query started by a script
    APPLICATION = "application"  # a driver, or the script it runs


def subject_of(kind: str, *, discovered: bool) -> FailureSubject:
    """Return the subject of a query's failure, from its revision's `kind` and its discovery."""
    if discovered:
        return FailureSubject.SCRIPT
    return FailureSubject.FUNCTION if kind == "python" else FailureSubject.SQL


_NEW_LOCATION = "set another checkpointLocation in the script, then restart the application"
_OFFSETS = "reset the query to specific offsets, one for each partition"
_SCRIPT = {
    "start": "start the application",
    "restart": "restart the application",
    "edit": "Change the script",
    "code": "the script",
    "renew": f"{_NEW_LOCATION}: the query starts there without its state",
    "to_earliest": (
        "Headgate cannot reset a query that a script starts. In the script, set another "
        "checkpointLocation and startingOffsets=earliest, then restart the application. The "
        "query then reads all available data, without its state."
    ),
    "from_start": (
        "Headgate cannot reset a query that a script starts. In the script, set another "
        "checkpointLocation, then restart the application. The query then reads what the table "
        "still has, without its state."
    ),
    "go_on": (
        "Set the source's failOnDataLoss option to false in the script, which keeps the state, "
        f"then restart the application. Or {_NEW_LOCATION}."
    ),
    "past_record": (
        "change the script to read from the next offset (startingOffsets, another "
        "checkpointLocation)"
    ),
    "package": (
        "Add the package to the application's packages field, or correct the import, then restart "
        "the application."
    ),
    "async_off": (
        "write asyncProgressTrackingCheckpointIntervalMs=0 in the script and restart the "
        "application with async progress tracking on; once two batches have committed, remove both"
    ),
    "takeover": (
        "Make sure that the other installation no longer runs this query; then set another "
        "checkpointLocation in the script, or copy the checkpoint there."
    ),
}
_QUERY = {
    "start": "start the query",
    "restart": "restart the query",
    "edit": "Change the definition",
    "code": "the query's SQL",
    "renew": "reset the query, which gives it a new checkpoint without its state",
    "to_earliest": (
        "Reset the query to earliest: it reads all available data, with a new checkpoint and "
        "without its state. To skip part of the data, reset to offsets instead."
    ),
    "from_start": (
        "Reset the query to earliest: it reads what the table still has, with a new checkpoint and "
        "without its state."
    ),
    "go_on": (
        "Skip the lost data, which keeps the state and records the loss, or reset the query to "
        "another position in its source."
    ),
    "past_record": "reset the query to offsets, using the next offset for its partition",
    "package": (
        "Add the package to the application's packages field, then restart the application."
    ),
    "async_off": (
        "switch it off the safe way, which recovers the query (on this page, or POST to the "
        "query's async-off/): Headgate starts the query with tracking on and "
        "asyncProgressTrackingCheckpointIntervalMs=0, lets two batches commit, then switches "
        "tracking off"
    ),
    "takeover": (
        "Make sure that the other installation no longer runs this query; then an author can "
        "confirm the takeover."
    ),
}
_WORDS: dict[FailureSubject, dict[str, str]] = {
    FailureSubject.SQL: _QUERY,
    FailureSubject.FUNCTION: {
        **_QUERY,
        "edit": "Change the definition or its function",
        "code": "the function",
        "renew": (
            "reset the query, which gives it a new checkpoint without its state (if it reads "
            "Kafka, reset it to offsets: the broker is specified inside the query's function, so "
            "Headgate does not contact that broker)"
        ),
        "to_earliest": (
            "The broker is specified inside the query's function, so Headgate does not contact "
            f"that broker: {_OFFSETS} (0 if nothing was deleted). The query reads from there with "
            "a new checkpoint and without its state."
        ),
        "go_on": (
            "Set the source's failOnDataLoss option to false in the function, which keeps the "
            f"state, then restart the query. Or {_OFFSETS}."
        ),
        "package": _SCRIPT["package"],
        "async_off": (
            "switch it off the safe way: write asyncProgressTrackingCheckpointIntervalMs=0 in the "
            "function, with async progress tracking on, and restart the query; once two batches "
            "have committed, remove both"
        ),
    },
    FailureSubject.SCRIPT: _SCRIPT,
    FailureSubject.APPLICATION: {**_SCRIPT, "edit": "Change the application or its script"},
}


def fitted(way_out: str, subject: FailureSubject) -> str:
    """Return a remedy worded for the subject; each sentence begins with a capital letter."""
    text = way_out.format_map(_WORDS[subject])
    return text[:1].upper() + text[1:]
