"""The states of the small protocol: record, spawn, lock, identity, exit, adopt, stop, release."""

import os

import pytest

from queries.domain import restart
from queries.domain.protocol import Hangs, RunState
from queries.domain.restart import RunFacts, RunVerdict
from tests.model import small_protocol
from tests.model.small_protocol import ALIVE, Process, walk

#: How many drivers, crashes and pauses a walk allows; `make soak` walks further.
WALKS = [
    tuple(int(number) for number in walk.split(","))
    for walk in os.environ.get("HEADGATE_SMALL_WALKS", "1,1,1 2,0,0").split()
]


@pytest.mark.timeout(0)
@pytest.mark.parametrize(("epochs", "crashes", "pauses"), WALKS)
def test_no_state_breaks_an_invariant_wherever_somebody_pauses_or_dies(
    epochs: int, crashes: int, pauses: int, capsys: pytest.CaptureFixture[str]
) -> None:
    walked = walk(epochs=epochs, crashes=crashes, pauses=pauses)
    bounds = f"drivers: {epochs}, crashes: {crashes}, pauses: {pauses}"
    with capsys.disabled():
        print(f"\n{walked.states:,} states of the small protocol ({bounds})")  # noqa: T201
    assert not walked.broken, "\n".join([walked.broken, *walked.way])
    assert walked.whole
    assert walked.states > 5_000


def test_a_lock_released_when_a_stop_times_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = restart.judge

    def released_at_the_time_out(facts: RunFacts) -> RunVerdict:
        if facts.overdue and not facts.building:
            return RunVerdict(RunState.ENDED, release=True, hangs=Hangs.NOTHING)
        return real(facts)

    monkeypatch.setattr(restart, "judge", released_at_the_time_out)
    walked = walk(epochs=2, crashes=0, pauses=0)
    assert walked.broken.startswith("I1")
    assert any(step.startswith("stop() times out") for step in walked.way)


def test_a_shim_that_starts_what_was_sealed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is closed; a shim that was spawned before, or by a worker that slept, comes to."""

    def never_sees_an_exit(process: Process) -> bool:
        return process.ident or process.shim == ALIVE

    monkeypatch.setattr(small_protocol, "_begun", never_sees_an_exit)
    walked = walk(epochs=1, crashes=0, pauses=1)
    assert walked.broken == "I3: epoch 1 lives and its row is closed"
    assert walked.way[-1].startswith("python of")
    assert any("seal 1" in step for step in walked.way)
