"""What users can do about a failure: the actions for its category, and the effect of each.

Pages offer these actions next to the failure, the best one first. Lost data, takeovers and async
progress tracking have their own actions, which are shown separately with their own figures.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from queries.domain.failures.categories import Category
from queries.domain.failures.subjects import Subject
from queries.domain.states import DOWN_PHASES, STOPPED_PHASES, Phase, Policy


class Act(StrEnum):
    """An action that is offered for a failure."""

    EDIT = "edit"  # the definition, then restart on it
    BACK = "back"  # to the revision that last worked
    REWIND = "rewind"  # to before the batch
    RESET = "reset"  # a new checkpoint
    AGAIN = "again"  # start or restart now
    STOP = "stop"  # stop retrying


@dataclass(frozen=True, slots=True)
class Seen:
    """What the actions depend on: a failure and its query."""

    category: Category
    phase: Phase
    wanted: bool  # the query should be running
    batch: int | None  # the failed batch; None: no batch failed
    revision: int  # the revision that ran
    newest: int
    good: int | None  # revision of the last run that committed; None: no such run
    subject: Subject = Subject.SQL


@dataclass(frozen=True, slots=True)
class Way:
    """One action: its button label, its effect, and the number it refers to."""

    act: Act
    words: str
    leads_to: str
    number: int | None = None  # revision or batch
    helps: bool = True  # False: it does not remove the failure


#: The error is in the definition or in users' code.
_WRITTEN = frozenset(
    {
        *(Category.DATA, Category.USER_CODE, Category.CONFIGURATION, Category.PLAN),
        *(Category.INCOMPATIBLE, Category.CULPRIT),
    }
)
#: The query fails on a batch, or on the data that the batch reads.
_OF_A_BATCH = frozenset({Category.DATA, Category.USER_CODE, Category.CORRUPTION, Category.DAMAGED})
#: Actions possible for a query that a script starts: the script decides everything else.
OF_A_SCRIPT = frozenset({Act.EDIT, Act.REWIND, Act.AGAIN, Act.STOP})
#: The query cannot continue from the checkpoint as it is.
_OF_CHECKPOINT = frozenset({Category.INCOMPATIBLE, Category.DAMAGED, Category.CORRUPTION})


def ways(seen: Seen) -> list[Way]:
    """Return the offered actions, best first; none for a query that is running again."""
    mending = [way for way in _mending(seen) if _possible(way, seen)]
    if seen.phase is Phase.RUNNING or (seen.phase in STOPPED_PHASES and not mending):
        return []
    return [*mending, *_going_on(seen)]


def _possible(way: Way, seen: Seen) -> bool:
    return seen.subject is not Subject.SCRIPT or way.act in OF_A_SCRIPT


def _mending(seen: Seen) -> Iterator[Way]:
    """Yield the actions that change the definition or the checkpoint."""
    back = _back(seen)
    if back is not None and seen.category is Category.INCOMPATIBLE:
        yield back
    if seen.category in _WRITTEN:
        yield _edit(seen)
    if back is not None and seen.category is not Category.INCOMPATIBLE:
        yield back
    if seen.category in _OF_A_BATCH and seen.batch:
        yield Way(
            Act.REWIND,
            f"Rewind to batch {seen.batch - 1:,}",
            f"Batch {seen.batch:,} is planned again from a copy of the checkpoint and may "
            "read different files or offsets. The old checkpoint is kept.",
            seen.batch - 1,
        )
    if seen.category in _OF_CHECKPOINT:
        yield Way(
            Act.RESET,
            "Reset the query",
            "Starts over with a new checkpoint and no state. The old checkpoint is kept.",
        )


def _edit(seen: Seen) -> Way:
    if seen.subject is Subject.SCRIPT:
        return Way(
            Act.EDIT,
            "Edit the application",
            "Opens its definition: packages, configuration, code. To change the query itself, "
            "edit the script.",
        )
    return Way(
        Act.EDIT,
        "Edit and restart",
        "Opens the definition. Saving it creates a revision and starts the query on it.",
    )


def _back(seen: Seen) -> Way | None:
    if seen.category not in _WRITTEN or seen.good is None or seen.good == seen.newest:
        return None
    return Way(
        Act.BACK,
        f"Back to revision {seen.good}",
        f"Creates a revision identical to {seen.good}, which committed batches, and starts "
        "the query on it.",
        seen.good,
    )


def _going_on(seen: Seen) -> Iterator[Way]:
    """Yield the actions that try again or give up."""
    if seen.subject is Subject.SCRIPT:
        yield from _of_the_script(seen)
        return
    on = f" on revision {seen.newest}" if seen.newest != seen.revision else ""
    again = Way(Act.AGAIN, "Start now", f"Retries immediately{on}, with its counters reset.")
    stop = Way(Act.STOP, "Stop retrying", "The query stays stopped until someone starts it.")
    found = [again, stop]
    if seen.category.policy is Policy.FATAL and not on:
        text = "It will fail again unless its cause was removed: a restart alone cannot fix this."
        stop = replace(stop, words="Stop the query", helps=False)
        found = [stop, replace(again, leads_to=text, helps=False)]
    for way in found:
        if seen.wanted if way.act is Act.STOP else seen.phase in DOWN_PHASES:
            yield way


def _of_the_script(seen: Seen) -> Iterator[Way]:
    if seen.phase in DOWN_PHASES:
        yield Way(
            Act.AGAIN,
            "Restart the application",
            "A new driver runs the script from the beginning; all of its queries restart.",
        )
    if seen.wanted:
        yield Way(
            Act.STOP, "Stop the application", "The script stays stopped until someone starts it."
        )
