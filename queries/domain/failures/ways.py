"""What a person can do about a failure: which acts its category offers, and what each leads to.

Pages offer them where the failure is read, the best one first. What lost data, takeovers and
async progress tracking need is offered beside them, with its own figures.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from queries.domain.failures.categories import Category
from queries.domain.states import DOWN_PHASES, STOPPED_PHASES, Phase


class Act(StrEnum):
    """What is offered."""

    EDIT = "edit"  # the definition, then restart on it
    BACK = "back"  # to the revision that ran well
    REWIND = "rewind"  # to before the batch
    RESET = "reset"  # a new checkpoint
    AGAIN = "again"  # start, or restart, now
    STOP = "stop"  # retry no more


@dataclass(frozen=True, slots=True)
class Seen:
    """A failure and its query, as far as the acts go by them."""

    category: Category
    phase: Phase
    wanted: bool  # the query should run
    batch: int | None  # that failed; None: none did
    revision: int  # that ran
    newest: int
    good: int | None  # revision of the last run that committed; None: there was none


@dataclass(frozen=True, slots=True)
class Way:
    """One act: the words on its button, what it leads to, and the number that it is about."""

    act: Act
    words: str
    leads_to: str
    number: int | None = None  # revision or batch


#: What is wrong is written in the definition or in users' code.
_WRITTEN = frozenset(
    {
        *(Category.DATA, Category.USER_CODE, Category.CONFIGURATION, Category.PLAN),
        *(Category.INCOMPATIBLE, Category.CULPRIT),
    }
)
#: A batch, or what it reads, is what the query fails on.
_OF_A_BATCH = frozenset({Category.DATA, Category.USER_CODE, Category.CORRUPTION, Category.DAMAGED})
#: The checkpoint cannot be gone on with as it is.
_OF_CHECKPOINT = frozenset({Category.INCOMPATIBLE, Category.DAMAGED, Category.CORRUPTION})


def ways(seen: Seen) -> list[Way]:
    """Return what is offered, the best first; nothing for a query that runs again."""
    mending = list(_mending(seen))
    if seen.phase is Phase.RUNNING or (seen.phase in STOPPED_PHASES and not mending):
        return []
    return [*mending, *_going_on(seen)]


def _mending(seen: Seen) -> Iterator[Way]:
    """Yield what changes the definition or the checkpoint."""
    back = _back(seen)
    if back is not None and seen.category is Category.INCOMPATIBLE:
        yield back
    if seen.category in _WRITTEN:
        yield Way(
            Act.EDIT,
            "Edit and restart",
            "Opens the definition; saving it makes a revision and starts the query on that.",
        )
    if back is not None and seen.category is not Category.INCOMPATIBLE:
        yield back
    if seen.category in _OF_A_BATCH and seen.batch:
        yield Way(
            Act.REWIND,
            f"Rewind to batch {seen.batch - 1:,}",
            f"Batch {seen.batch:,} is planned again from a copy of the checkpoint: it may read "
            "other files or offsets. The old checkpoint is kept.",
            seen.batch - 1,
        )
    if seen.category in _OF_CHECKPOINT:
        yield Way(
            Act.RESET,
            "Reset the query",
            "Starts over with a new checkpoint, without its state. The old one is kept.",
        )


def _back(seen: Seen) -> Way | None:
    if seen.category not in _WRITTEN or seen.good is None or seen.good == seen.newest:
        return None
    return Way(
        Act.BACK,
        f"Back to revision {seen.good}",
        f"Makes a revision equal to {seen.good}, which committed batches, and starts the query on "
        "it.",
        seen.good,
    )


def _going_on(seen: Seen) -> Iterator[Way]:
    """Yield what tries again, and what gives up."""
    if seen.phase in DOWN_PHASES:
        on = f" on revision {seen.newest}" if seen.newest != seen.revision else ""
        yield Way(
            Act.AGAIN,
            "Start now",
            f"Tries again at once{on}, with its counters cleared.",
        )
    if seen.wanted:
        yield Way(Act.STOP, "Stop retrying", "The query stays stopped until somebody starts it.")
