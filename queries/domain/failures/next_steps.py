"""What users can do about a failure: the actions for its category, and the effect of each.

Pages offer these actions next to the failure, the best one first. Lost data, takeovers and async
progress tracking have their own actions, which are shown separately with their own figures.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from queries.domain.failures.categories import Category, FailureSubject
from queries.domain.states import DOWN_PHASES, STOPPED_PHASES, Phase, Policy


class ActionKind(StrEnum):
    """An action that is offered for a failure."""

    EDIT = "edit"  # the definition, then restart on it
    BACK = "back"  # to the revision that last worked
    REWIND = "rewind"  # to before the batch
    RESET = "reset"  # a new checkpoint
    AGAIN = "again"  # start or restart now
    STOP = "stop"  # stop retrying


@dataclass(frozen=True, slots=True)
class FailedRun:
    """What the actions depend on: a failure and its query."""

    category: Category
    phase: Phase
    wanted: bool  # the query should be running
    batch: int | None  # the failed batch; None: no batch failed
    revision: int  # the revision that ran
    newest: int
    good: int | None  # revision of the last run that committed; None: no such run
    subject: FailureSubject = FailureSubject.SQL


@dataclass(frozen=True, slots=True)
class OfferedAction:
    """One action: its button label, its effect, and the number it refers to."""

    act: ActionKind
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
OF_A_SCRIPT = frozenset({ActionKind.EDIT, ActionKind.REWIND, ActionKind.AGAIN, ActionKind.STOP})
#: The query cannot continue from the checkpoint as it is.
_OF_CHECKPOINT = frozenset({Category.INCOMPATIBLE, Category.DAMAGED, Category.CORRUPTION})


def offered_actions(failed_run: FailedRun) -> list[OfferedAction]:
    """Return the offered actions, best first; none for a query that is running again."""
    mending = [way for way in _mending(failed_run) if _possible(way, failed_run)]
    if failed_run.phase is Phase.RUNNING or (failed_run.phase in STOPPED_PHASES and not mending):
        return []
    return [*mending, *_going_on(failed_run)]


def _possible(way: OfferedAction, failed_run: FailedRun) -> bool:
    return failed_run.subject is not FailureSubject.SCRIPT or way.act in OF_A_SCRIPT


def _mending(failed_run: FailedRun) -> Iterator[OfferedAction]:
    """Yield the actions that change the definition or the checkpoint."""
    back = _back(failed_run)
    if back is not None and failed_run.category is Category.INCOMPATIBLE:
        yield back
    if failed_run.category in _WRITTEN:
        yield _edit(failed_run)
    if back is not None and failed_run.category is not Category.INCOMPATIBLE:
        yield back
    if failed_run.category in _OF_A_BATCH and failed_run.batch:
        yield OfferedAction(
            ActionKind.REWIND,
            f"Rewind to batch {failed_run.batch - 1:,}",
            f"Batch {failed_run.batch:,} is planned again from a copy of the checkpoint and may "
            "read different files or offsets. The old checkpoint is kept.",
            failed_run.batch - 1,
        )
    if failed_run.category in _OF_CHECKPOINT:
        yield OfferedAction(
            ActionKind.RESET,
            "Reset the query",
            "Starts over with a new checkpoint and no state. The old checkpoint is kept.",
        )


def _edit(failed_run: FailedRun) -> OfferedAction:
    if failed_run.subject is FailureSubject.SCRIPT:
        return OfferedAction(
            ActionKind.EDIT,
            "Edit the application",
            "Opens its definition: packages, configuration, code. To change the query itself, "
            "edit the script.",
        )
    return OfferedAction(
        ActionKind.EDIT,
        "Edit and restart",
        "Opens the definition. Saving it creates a revision and starts the query on it.",
    )


def _back(failed_run: FailedRun) -> OfferedAction | None:
    if (
        failed_run.category not in _WRITTEN
        or failed_run.good is None
        or failed_run.good == failed_run.newest
    ):
        return None
    return OfferedAction(
        ActionKind.BACK,
        f"Back to revision {failed_run.good}",
        f"Creates a revision identical to {failed_run.good}, which committed batches, and starts "
        "the query on it.",
        failed_run.good,
    )


def _going_on(failed_run: FailedRun) -> Iterator[OfferedAction]:
    """Yield the actions that try again or give up."""
    if failed_run.subject is FailureSubject.SCRIPT:
        yield from _of_the_script(failed_run)
        return
    on = f" on revision {failed_run.newest}" if failed_run.newest != failed_run.revision else ""
    again = OfferedAction(
        ActionKind.AGAIN, "Start now", f"Retries immediately{on}, with its counters reset."
    )
    stop = OfferedAction(
        ActionKind.STOP, "Stop retrying", "The query stays stopped until someone starts it."
    )
    actions = [again, stop]
    if failed_run.category.policy is Policy.FATAL and not on:
        text = "It will fail again unless its cause was removed: a restart alone cannot fix this."
        stop = replace(stop, words="Stop the query", helps=False)
        actions = [stop, replace(again, leads_to=text, helps=False)]
    for way in actions:
        if failed_run.wanted if way.act is ActionKind.STOP else failed_run.phase in DOWN_PHASES:
            yield way


def _of_the_script(failed_run: FailedRun) -> Iterator[OfferedAction]:
    if failed_run.phase in DOWN_PHASES:
        yield OfferedAction(
            ActionKind.AGAIN,
            "Restart the application",
            "A new driver runs the script from the beginning; all of its queries restart.",
        )
    if failed_run.wanted:
        yield OfferedAction(
            ActionKind.STOP,
            "Stop the application",
            "The script stays stopped until someone starts it.",
        )
