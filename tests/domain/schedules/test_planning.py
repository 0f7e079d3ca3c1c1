"""What a planned time gives: exactly one start, place in the queue or named skip."""

from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.planning import (
    PlannedOutcome,
    PlannedState,
    ScheduledObject,
    SkipReason,
    choose,
    end_of,
    is_ahead,
)
from queries.domain.states import Desired, Phase

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
REST: dict[str, Any] = {
    "desired": Desired.STOPPED,
    "phase": Phase.COMPLETED,
    "has_run": False,
    "paused": False,
    "waiting": False,
}
BUSY = {"desired": Desired.RUNNING, "phase": Phase.RUNNING, "has_run": True}


def _schedule(**fields: Any) -> Schedule:
    return Schedule(cron="* * * * *", **fields)


@pytest.mark.parametrize(
    ("fields", "subject", "late", "gives"),
    [
        ({}, {}, 0, PlannedState.STARTED),
        ({}, {}, 3600, PlannedState.STARTED),
        ({}, {}, 90_000, SkipReason.MISSED),
        ({"missed": "skip"}, {}, 3600, SkipReason.MISSED),
        ({"missed": "skip"}, {}, 60, PlannedState.STARTED),
        ({}, {"paused": True}, 0, SkipReason.PAUSED),
        ({}, {"phase": Phase.FAILED, "desired": Desired.RUNNING}, 0, SkipReason.BLOCKED),
        ({}, {"phase": Phase.ON_HOLD, "desired": Desired.RUNNING}, 0, SkipReason.BLOCKED),
        ({}, {"phase": Phase.UNREACHABLE, "has_run": True}, 0, SkipReason.HOST),
        ({}, BUSY, 0, SkipReason.OVERLAP),
        ({}, {"has_run": True}, 0, SkipReason.OVERLAP),
        ({"overlap": "queue"}, BUSY, 0, PlannedState.WAITING),
        ({"overlap": "queue"}, {**BUSY, "waiting": True}, 0, SkipReason.DUPLICATE),
    ],
)
def test_the_newest_time(
    fields: dict[str, Any], subject: dict[str, Any], late: int, gives: PlannedState | SkipReason
) -> None:
    at = NOW - timedelta(seconds=late)
    (choice,) = choose([at], _schedule(**fields), ScheduledObject(**(REST | subject)), NOW)
    if isinstance(gives, SkipReason):
        assert choice == PlannedOutcome(at, PlannedState.SKIPPED, gives)
    else:
        assert choice == PlannedOutcome(at, gives)


@given(
    due=st.lists(st.integers(0, 100_000), unique=True, max_size=20),
    subject=st.builds(
        ScheduledObject,
        desired=st.sampled_from(Desired),
        phase=st.sampled_from(Phase),
        has_run=st.booleans(),
        paused=st.booleans(),
        waiting=st.booleans(),
    ),
    overlap=st.sampled_from(["skip", "queue"]),
    missed=st.sampled_from(["skip", "run_once"]),
    more=st.booleans(),
)
def test_each_time_has_one_choice_and_at_most_one_runs(
    due: list[int], subject: ScheduledObject, overlap: str, missed: str, more: bool
) -> None:
    times = [NOW - timedelta(seconds=one) for one in sorted(due, reverse=True)]
    choices = choose(times, _schedule(overlap=overlap, missed=missed), subject, NOW, more=more)
    # Each time is in one choice, in order, and choices that follow each other differ.
    covered = [0, *accumulate(one.times for one in choices)]
    assert covered[-1] == len(times)
    for one, first, end in zip(choices, covered, covered[1:], strict=False):
        assert one.due_at == times[end - 1]
        assert one.first_due_at == (times[first] if one.times > 1 else None)
    assert len(choices) <= 2
    assert all((one.state is PlannedState.SKIPPED) == bool(one.skipped) for one in choices)
    runs = [one for one in choices if not one.skipped]
    assert runs in ([], choices[-1:])
    assert all(one.times == 1 for one in runs)
    assert not (runs and more)
    assert all(subject.at_rest for one in runs if one.state is PlannedState.STARTED)


@pytest.mark.parametrize(
    ("fields", "subject", "instead", "gives"),
    [
        ({}, {}, PlannedState.WAITING, PlannedState.WAITING),
        ({}, {"waiting": True}, PlannedState.WAITING, SkipReason.DUPLICATE),
        ({}, {}, SkipReason.REMOVED, SkipReason.REMOVED),
        ({"overlap": "queue"}, BUSY, SkipReason.PAUSED, SkipReason.PAUSED),
        ({}, BUSY, SkipReason.PAUSED, SkipReason.OVERLAP),
    ],
)
def test_a_change_decides_what_would_have_started(
    fields: dict[str, Any],
    subject: dict[str, Any],
    instead: PlannedState | SkipReason,
    gives: PlannedState | SkipReason,
) -> None:
    (choice,) = choose(
        [NOW], _schedule(**fields), ScheduledObject(**(REST | subject)), NOW, instead=instead
    )
    assert (choice.skipped or choice.state) == gives


@pytest.mark.parametrize(
    ("handled", "now", "ahead"),
    [
        (NOW + timedelta(seconds=60), NOW, False),
        (NOW + timedelta(seconds=61), NOW, True),
        (NOW, datetime(1970, 1, 1, tzinfo=UTC), False),  # this clock is the wrong one
    ],
)
def test_what_a_clock_that_was_ahead_has_handled_is_recognised(
    handled: datetime, now: datetime, ahead: bool
) -> None:
    assert is_ahead(handled, now) is ahead


@pytest.mark.parametrize(
    ("generation", "subject", "ended"),
    [
        (7, BUSY, None),
        (7, {}, PlannedState.DONE),
        (7, {"phase": Phase.STOPPED}, PlannedState.STOPPED),
        (7, {"phase": Phase.FAILED, "desired": Desired.RUNNING}, PlannedState.FAILED),
        (7, {"phase": Phase.ON_HOLD, "desired": Desired.RUNNING}, PlannedState.FAILED),
        (7, {"desired": Desired.RUNNING}, None),
        (8, BUSY, PlannedState.STOPPED),
    ],
)
def test_how_a_planned_run_ends(
    generation: int, subject: dict[str, Any], ended: PlannedState | None
) -> None:
    assert end_of(7, generation, ScheduledObject(**(REST | subject))) is ended
