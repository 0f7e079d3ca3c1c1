"""When a run has ended, and when its checkpoint's lock may go: one rule, on plain facts.

The driver applies it to each of its runs (`queries.runtime.run`), and so does the launcher that
tests use instead of processes, so that what is tested is the rule that holds in production.

What Spark says of a query is not enough: `isActive()` is false as soon as `stop()` begins, while
the thread that executes batches, or a call of `foreachBatch` in Python, may go on for as long as
users' code likes and write its batch late (invariant I1).
"""

from dataclasses import dataclass

from queries.domain.protocol import Hangs, RunState, Want


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What can be seen of one run at one moment."""

    building: bool = False  # the definition is being built: start() has not returned
    thread_alive: bool = False  # Spark's thread of the query; False where none was started
    callbacks_open: int = 0  # calls of the run's foreachBatch function that have not returned
    asked: Want = Want.RUN  # what was asked of it
    failed: bool = False  # an error of its own is known
    refused: bool = False  # its checkpoint belongs to somebody else
    overdue: bool = False  # its start, or its end, takes longer than its limit


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """What follows for the run."""

    outcome: RunState | None  # ENDED, FAILED or REFUSED; None: the run is open
    release: bool  # nothing of the run can write any more: its lock and owner may go
    hangs: Hangs  # what of it does not end, though it should have by now


def judge(facts: RunFacts) -> RunVerdict:
    """Return whether the run has ended, whether its lock may go, and what of it hangs.

    1. The lock goes once nothing of the run is left that could write, and never because a time
       has passed: a stop that times out releases nothing.
    2. A run ends once nothing of it is left. Only a failure is told earlier, where what is left
       of the run hangs: the outcome is known then, the end is not.
    """
    left = facts.building or facts.thread_alive or facts.callbacks_open > 0
    hangs = Hangs.NOTHING
    if left and facts.overdue:
        hangs = Hangs.START if facts.building else Hangs.STOP
    return RunVerdict(outcome=_outcome(facts, left), release=not left, hangs=hangs)


def _outcome(facts: RunFacts, left: bool) -> RunState | None:
    # A stop in the middle of a batch is no failure, whatever it tears on its way.
    failed = facts.failed and facts.asked is Want.RUN and not facts.refused
    if left:
        # A start that is late has failed, whatever was asked of it meanwhile.
        known = facts.overdue and (facts.building or failed)
        return RunState.FAILED if known else None
    if facts.refused:
        return RunState.REFUSED
    return RunState.FAILED if failed else RunState.ENDED
