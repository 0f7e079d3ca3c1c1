"""When a run has ended, and when its checkpoint's lock can be released: one rule on plain facts.

The driver applies it to each of its runs (`queries.runtime.run`). The launcher that tests use
instead of real processes applies it too, so that the tested rule is the one used in production.

Spark's report about a query is not enough: `isActive()` is false as soon as `stop()` begins, but
the thread that executes batches, or a `foreachBatch` call in Python, may continue for as long as
users' code takes, and write its batch late (invariant I1).
"""

from dataclasses import dataclass

from queries.domain.protocol import Hangs, RunState, Want


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The observable facts about one run at one moment."""

    building: bool = False  # the definition is being built: start() has not returned
    thread_alive: bool = False  # Spark's thread of the query; False if none was started
    callbacks_open: int = 0  # calls of the run's foreachBatch function that have not returned
    asked: Want = Want.RUN  # what was requested of the run
    failed: bool = False  # it has an error of its own
    refused: bool = False  # its checkpoint belongs to somebody else
    overdue: bool = False  # its start, or its end, is taking longer than its limit


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The consequences for the run."""

    outcome: RunState | None  # ENDED, FAILED or REFUSED; None: the run is open
    release: bool  # nothing of the run can write any more: release its lock and owner
    hangs: Hangs  # the part of it that has not ended, although it should have by now


def judge(facts: RunFacts) -> RunVerdict:
    """Return whether the run has ended, whether to release its lock, and what part of it hangs.

    1. The lock is released once nothing that could write is left of the run, and never merely
       because time has passed: a stop that times out does not release anything.
    2. A run ends once nothing is left of it. Only a failure is reported earlier, if the rest of the
       run hangs: the outcome is known at that point, the end is not.
    """
    left = facts.building or facts.thread_alive or facts.callbacks_open > 0
    hangs = Hangs.NOTHING
    if left and facts.overdue:
        hangs = Hangs.START if facts.building else Hangs.STOP
    return RunVerdict(outcome=_outcome(facts, left), release=not left, hangs=hangs)


def _outcome(facts: RunFacts, left: bool) -> RunState | None:
    # A stop in the middle of a batch is not a failure, whatever errors it causes.
    failed = facts.failed and facts.asked is Want.RUN and not facts.refused
    if left:
        # A late start has failed, whatever has been requested of it since.
        has_failed = facts.overdue and (facts.building or failed)
        return RunState.FAILED if has_failed else None
    if facts.refused:
        return RunState.REFUSED
    return RunState.FAILED if failed else RunState.ENDED
