"""The states of the small protocol: record, spawn, lock, identity, exit, adopt, stop, release."""

import os

import pytest

from queries.domain import run_end
from queries.domain.protocol import Hangs, RunState
from queries.domain.run_end import RunFacts, RunVerdict
from tests.model import small_protocol
from tests.model.small_protocol import ALIVE, Process, walk

#: States to look at, the nearest first; `make soak` looks at many more.
STATES = int(os.environ.get("HEADGATE_SMALL_STATES", "15000"))


def test_no_state_breaks_an_invariant_wherever_somebody_pauses_or_dies() -> None:
    walked = walk(epochs=2, crashes=1, most=STATES)
    assert not walked.broken, "\n".join([walked.broken, *walked.way])
    assert walked.whole or walked.states >= 15_000


def test_a_lock_released_when_a_stop_times_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = run_end.judge

    def released_at_the_time_out(facts: RunFacts) -> RunVerdict:
        if facts.overdue and not facts.building:
            return RunVerdict(RunState.ENDED, release=True, hangs=Hangs.NOTHING)
        return real(facts)

    monkeypatch.setattr(run_end, "judge", released_at_the_time_out)
    walked = walk(epochs=2, crashes=0, most=15_000)
    assert walked.broken.startswith("I1")
    assert any(step.startswith("stop() times out") for step in walked.way)


def test_a_shim_that_starts_what_was_sealed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker sleeps between the row and the spawn, and wakes when the row is closed."""

    def never_sees_an_exit(process: Process) -> bool:
        return process.ident or process.shim == ALIVE

    monkeypatch.setattr(small_protocol, "_begun", never_sees_an_exit)
    walked = walk(epochs=2, crashes=0, most=15_000)
    assert walked.broken == "I3: epoch 1 lives and its row is closed"
    assert walked.way.index("seal 1") < walked.way.index("spawn 1")
