"""The categories of failures: the restart policy of each, and its general advice."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from queries.domain.states import Policy


class Category(StrEnum):
    """What kind of failure it is; each has one restart policy."""

    policy: Policy

    def __new__(cls, words: str, policy: Policy = Policy.RETRY) -> Self:
        """Return a member whose value is its words alone."""
        category = str.__new__(cls, words)
        category._value_, category.policy = words, policy
        return category

    CONNECTION = "connection"
    STORAGE = "storage"
    CAPACITY = "capacity"
    MEMORY = "memory"
    PROCESS = "process"
    LOCK = "lock held"
    EARLIER_RUN = "earlier run"
    FENCED = "fenced"
    ENDED = "ended unasked"
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
    """A way out that Headgate itself offers, where the rule knows which one it is."""

    NONE = "none"
    TO_EARLIEST = "to earliest"  # reset the query: there is nothing to skip
    ASYNC_OFF = "async off"  # switch async progress tracking off the safe way


@dataclass(frozen=True, slots=True)
class Advice:
    """What a failure means and what to do about it."""

    category: Category
    meaning: str
    way_out: str
    remedy: Remedy = Remedy.NONE


#: Said of a failure within a batch only: before any batch there is none to be read again.
AGAIN = ": the same batch is read again"
#: The way out where what is left at the source is not what the checkpoint's offsets are about.
TO_EARLIEST = (
    "Reset the query to earliest: it reads all that is there now, with a new checkpoint and "
    "without its state. To skip part of it, reset to offsets instead."
)

#: The advice of each category where no rule is more specific.
GENERAL: dict[Category, Advice] = {
    category: Advice(category, meaning, way_out)
    for category, (meaning, way_out) in {
        Category.CONNECTION: (
            "A service that the query uses did not respond, or refused the connection.",
            "Nothing, if the service comes back: the query keeps retrying. Otherwise check the "
            "address, credentials and network of that service.",
        ),
        Category.STORAGE: (
            "Reading or writing a file failed, possibly only for a moment.",
            "The query retries. If the failure persists, check disk space, permissions and the "
            "storage.",
        ),
        Category.CAPACITY: (
            "There were not enough cores or memory at that moment.",
            "The query retries. Give the application more cores or memory, or move queries "
            "out of it.",
        ),
        Category.MEMORY: (
            "The driver ran out of memory.",
            "It is restarted. Increase the application's memory, limit the size of a batch "
            "(maxFilesPerTrigger, maxOffsetsPerTrigger), or add a watermark so that old state is "
            "dropped.",
        ),
        Category.PROCESS: (
            "The driver process ended unexpectedly.",
            "It is restarted from the checkpoint. See the end of the driver's log.",
        ),
        Category.LOCK: (
            "Another process on this host holds the checkpoint.",
            "The query waits and tries again. End the process that holds it if it should not run.",
        ),
        Category.EARLIER_RUN: (
            "An earlier run in the same driver has not ended and may still write to the "
            "checkpoint.",
            "The query waits and tries again. If that run does not end, restart the application: "
            "a fresh driver is the way out, and its other queries restart too.",
        ),
        Category.FENCED: (
            "A later start of this query has taken over the checkpoint.",
            "Nothing: the later one continues.",
        ),
        Category.ENDED: (
            "The query ended cleanly, although nobody stopped it.",
            "It is restarted. Check that the query's code does not call stop().",
        ),
        Category.UNKNOWN: (
            "Headgate does not recognize this failure.",
            "The query retries. Read the root cause and the end of the log.",
        ),
        Category.DATA: (
            "The query cannot process a row in the batch.",
            "Change the query to handle such rows (try_divide, try_cast, nullif, a "
            f"filter), then restart it{AGAIN}.",
        ),
        Category.USER_CODE: (
            "The query's own code raised an error.",
            f"Read the traceback, fix the function, then restart the query{AGAIN}.",
        ),
        Category.CORRUPTION: (
            "A file of the checkpoint does not contain what was written.",
            "If it happens again on the same batch, check the disk, and start from a backup of "
            "the checkpoint or from a new one.",
        ),
        Category.CONFIGURATION: (
            "Spark refuses this combination of source, sink, trigger and options.",
            "Change the definition, then start the query.",
        ),
        Category.PLAN: (
            "Spark cannot plan this query: a name, a type or an operation is wrong.",
            "Change the query's text or code, then start it.",
        ),
        Category.SOURCE_LOST: (
            "Rows that the checkpoint has not read yet are gone from the source.",
            "They cannot be recovered from the source. Continue without the lost data, which "
            "keeps the state and records the loss, or reset the query to another position in its "
            "source.",
        ),
        Category.INCOMPATIBLE: (
            "The query has changed in a way that its checkpoint does not allow.",
            "Restore the earlier revision, or start the new one on a new checkpoint.",
        ),
        Category.DAMAGED: (
            "Files that the checkpoint needs are missing or cannot be read.",
            "Restore them from a backup, or start the query on a new checkpoint.",
        ),
        Category.OWNERSHIP: (
            "Something else is writing to this checkpoint.",
            "Find the other process (a notebook, another installation) and end it, then start "
            "the query. Both may have executed the same batch.",
        ),
        Category.CULPRIT: (
            "This query ends the process of its driver, and with it every other query there: a "
            "call of os._exit, a crash in native code, or more memory than the driver has.",
            "The end of the driver's log may name the place. Fix it, or move the query to an "
            "application of its own; then start it. Until then the other queries run without it.",
        ),
    }.items()
}
