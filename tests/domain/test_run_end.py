"""When a run has ended, and when its checkpoint's lock may go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.protocol import Hangs, RunState, Want
from queries.domain.restart import RunFacts, RunVerdict, judge

OPEN = RunVerdict(None, release=False, hangs=Hangs.NOTHING)
ENDED = RunVerdict(RunState.ENDED, release=True, hangs=Hangs.NOTHING)
FAILED = RunVerdict(RunState.FAILED, release=True, hangs=Hangs.NOTHING)
REFUSED = RunVerdict(RunState.REFUSED, release=True, hangs=Hangs.NOTHING)
STOP_HANGS = RunVerdict(None, release=False, hangs=Hangs.STOP)
START_HANGS = RunVerdict(RunState.FAILED, release=False, hangs=Hangs.START)
FAILED_AND_HANGS = RunVerdict(RunState.FAILED, release=False, hangs=Hangs.STOP)

CASES = {
    "it is being built": (RunFacts(building=True), OPEN),
    "it is being built when its stop is requested": (
        RunFacts(building=True, asked=Want.STOP),
        OPEN,
    ),
    "it is being built for too long": (RunFacts(building=True, overdue=True), START_HANGS),
    "it is being built for too long after a stop was requested": (
        RunFacts(building=True, asked=Want.STOP, overdue=True),
        START_HANGS,
    ),
    "it could not be built": (RunFacts(failed=True), FAILED),
    "it was to stop before it was started": (RunFacts(asked=Want.STOP), ENDED),
    "its checkpoint was refused": (RunFacts(refused=True), REFUSED),
    "it runs": (RunFacts(thread_alive=True), OPEN),
    "it finishes its batch": (
        RunFacts(thread_alive=True, callbacks_open=1, asked=Want.DRAIN),
        OPEN,
    ),
    "its thread has not ended yet after stop()": (
        RunFacts(thread_alive=True, asked=Want.STOP),
        OPEN,
    ),
    "stop() has timed out": (
        RunFacts(thread_alive=True, callbacks_open=1, asked=Want.STOP, overdue=True),
        STOP_HANGS,
    ),
    "its thread is gone, and a call of foreachBatch goes on": (
        RunFacts(callbacks_open=1, asked=Want.STOP),
        OPEN,
    ),
    "its thread is gone, and a call of foreachBatch does not end": (
        RunFacts(callbacks_open=1, asked=Want.STOP, overdue=True),
        STOP_HANGS,
    ),
    "everything of it is gone": (RunFacts(asked=Want.STOP), ENDED),
    "the stop that timed out has come to its end": (
        RunFacts(asked=Want.STOP, overdue=True),
        ENDED,
    ),
    "its batch was torn by the stop": (RunFacts(asked=Want.STOP, failed=True), ENDED),
    "it has finished by itself": (RunFacts(), ENDED),
    "it has failed": (RunFacts(failed=True), FAILED),
    "it has failed, and its thread is about to end": (
        RunFacts(thread_alive=True, failed=True),
        OPEN,
    ),
    "it has failed, and its thread does not end": (
        RunFacts(thread_alive=True, failed=True, overdue=True),
        FAILED_AND_HANGS,
    ),
    "it has failed, and a call of foreachBatch does not end": (
        RunFacts(callbacks_open=2, failed=True, overdue=True),
        FAILED_AND_HANGS,
    ),
    "its lock was lost, and its thread does not end": (
        RunFacts(thread_alive=True, asked=Want.STOP, refused=True, overdue=True),
        STOP_HANGS,
    ),
    "its lock was lost, and it has stopped": (
        RunFacts(asked=Want.STOP, refused=True, failed=True),
        REFUSED,
    ),
}


@pytest.mark.guarantee("G-FENCE-1")
@pytest.mark.parametrize(("facts", "verdict"), CASES.values(), ids=CASES.keys())
def test_how_a_run_ends(facts: RunFacts, verdict: RunVerdict) -> None:
    assert judge(facts) == verdict


@st.composite
def _facts(draw: st.DrawFn) -> RunFacts:
    flag = st.booleans()
    return RunFacts(
        building=draw(flag),
        thread_alive=draw(flag),
        callbacks_open=draw(st.integers(0, 3)),
        asked=draw(st.sampled_from(Want)),
        failed=draw(flag),
        refused=draw(flag),
        overdue=draw(flag),
    )


@given(_facts())
def test_the_lock_goes_when_nothing_of_the_run_is_left_and_never_by_the_clock(
    facts: RunFacts,
) -> None:
    left = facts.building or facts.thread_alive or facts.callbacks_open > 0
    assert judge(facts).release is not left


@given(_facts())
def test_a_run_whose_lock_may_go_has_an_outcome_and_nothing_of_it_hangs(facts: RunFacts) -> None:
    verdict = judge(facts)
    if verdict.release:
        assert verdict.outcome is not None
        assert verdict.hangs is Hangs.NOTHING


@given(_facts())
def test_what_is_left_of_a_run_with_an_outcome_is_named(facts: RunFacts) -> None:
    verdict = judge(facts)
    if verdict.outcome is not None and not verdict.release:
        assert verdict.outcome is RunState.FAILED
        assert verdict.hangs is not Hangs.NOTHING
