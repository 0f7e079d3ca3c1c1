"""Supervision under everything that may befall it, in random order, with a seed to repeat it."""

import os
import secrets
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from queries.domain import restart
from queries.domain.protocol import Hangs, RunState
from queries.domain.restart import RunFacts, RunVerdict
from tests.examples import examples
from tests.model.machine import Opening, Supervision

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(0)]

#: Steps of one history; then every fault ends, and everything must come to rest.
HISTORY = 60
#: Steps to take: `make soak` asks for more.
STEPS = int(os.environ.get("HEADGATE_SOAK_STEPS", "0")) or examples(400)
#: Where to begin: printed with a failure, and given again to repeat it.
SEED = int(os.environ.get("HEADGATE_SOAK_SEED", "0")) or secrets.randbelow(2**31)
#: Within how many steps the model must find a lock that is released when a stop times out.
FOUND_WITHIN = 10_000


def walk(
    *, steps: int, first_seed: int, shrink: bool = True, told: Callable[[str], object] = str
) -> int:
    """Take at least that many steps and return how many; a broken invariant raises.

    `told` hears now and then how far it has come.
    """
    before, turn, opening = Supervision.steps, 0, Opening()
    while (left := steps - (Supervision.steps - before)) > 0:
        run_state_machine_as_test(
            seed(first_seed + turn)(_from(opening)),
            settings=settings(
                max_examples=max(1, min(20, left // HISTORY)),
                stateful_step_count=HISTORY,
                deadline=None,
                database=None,  # a seed repeats what was found; nothing else is remembered
                phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
        turn += 1
        told(f"{Supervision.steps - before:,} steps taken, no invariant broken")
    return Supervision.steps - before


def _from(start: Opening) -> type[Supervision]:
    """Return a class of its own: a seed is written on it."""

    class Walk(Supervision):
        opening = start

    return Walk


@pytest.mark.guarantee("G-RESTART-1")
def test_no_invariant_breaks_whatever_happens(capsys: pytest.CaptureFixture[str]) -> None:
    def told(text: str) -> None:
        with capsys.disabled():
            print(f"\nHEADGATE_SOAK_SEED={SEED}: {text}", flush=True)  # noqa: T201

    told(f"{STEPS:,} steps to take")
    taken = walk(steps=STEPS, first_seed=SEED, told=told)
    assert taken >= STEPS


def test_a_lock_released_when_a_stop_times_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model judges the runtime's own rule: a rule that is wrong turns it red."""
    real = restart.judge

    def released_at_the_time_out(facts: RunFacts) -> RunVerdict:
        if facts.overdue and not facts.building:
            return RunVerdict(RunState.ENDED, release=True, hangs=Hangs.NOTHING)
        return real(facts)

    monkeypatch.setattr(restart, "judge", released_at_the_time_out)
    with pytest.raises(AssertionError, match=r"still write|without the lock|one checkpoint"):
        walk(steps=FOUND_WITHIN, first_seed=1, shrink=False)
