"""What is done about an application's standby driver, by what is seen of it and what is wanted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.protocol import DriverStatus, ExitReport
from queries.domain.states import DriverState, Reason
from queries.domain.supervision.decision import DriverAction
from queries.domain.supervision.observation import DriverSeen, Limits, Liveness, Sighting, StartMark
from queries.domain.supervision.standbys import (
    CALM_AFTER,
    LONGEST,
    StandbyDecision,
    StandbyWanted,
    decide_standby,
    is_calm,
    may_take_over,
)
from queries.domain.validation.application_rules import ValidationContext, application_problems

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
LIMITS = Limits(start_s=180, start_max_s=1800, stop_s=60, leave_s=30)
FILES_GONE = Sighting(Liveness.ALIVE, without_files=True)
WANTED, UNWANTED = StandbyWanted(may_start=True), StandbyWanted(Reason.NOT_WANTED)
KILLED = ExitReport("SIGKILL", "0", core=False, oom=False, at=NOW.isoformat())
FENCED = ExitReport("FENCED", "FENCED", core=False, oom=False, at=NOW.isoformat())


def seen(
    liveness: Liveness,
    *,
    ready: bool = False,
    age_s: float = 5,
    exit_: ExitReport | None = None,
    end_wanted: Reason = Reason.NONE,
    ending_s: float = 0,
    cpu_s: float | None = None,
    advanced_s: float | None = None,
) -> DriverSeen:
    """Return a standby as seen; `advanced_s` ago it had used 1 s of processor time."""
    status = DriverStatus(7, 0, NOW.isoformat(), ready=True) if ready else None
    at = None if advanced_s is None else NOW - timedelta(seconds=advanced_s)
    return DriverSeen(
        id=1,
        epoch=7,
        state=DriverState.STARTING,
        generation=0,
        created_at=NOW - timedelta(seconds=age_s),
        sighting=Sighting(liveness, status=status, exit=exit_, cpu_s=cpu_s),
        progress=None if at is None else StartMark(at, 1.0),
        end_wanted=end_wanted,
        end_wanted_at=NOW - timedelta(seconds=ending_s) if end_wanted else None,
    )


def decided(one: DriverSeen | None, wanted: StandbyWanted = WANTED) -> tuple[str, ...]:
    """Return the action, the state and why it must end."""
    choice = decide_standby(one, wanted, LIMITS, NOW)
    return choice.action, choice.state or "", choice.end_wanted


@pytest.mark.parametrize(
    ("one", "wanted", "expected"),
    [
        (None, WANTED, ("LAUNCH", "", "")),
        (None, UNWANTED, ("NOTHING", "", "")),
        (None, StandbyWanted(), ("NOTHING", "", "")),
        (seen(Liveness.ABSENT), WANTED, ("SPAWN", "STARTING", "")),
        (seen(Liveness.ABSENT), UNWANTED, ("SEAL", "STARTING", "NOT_WANTED")),
        (seen(Liveness.ABSENT, age_s=181), WANTED, ("SEAL", "STARTING", "START_TIMED_OUT")),
        (seen(Liveness.SPAWNING), WANTED, ("NOTHING", "STARTING", "")),
        (seen(Liveness.ALIVE, ready=True), WANTED, ("NOTHING", "LIVE", "")),
        (seen(Liveness.ALIVE, ready=True, age_s=9999), WANTED, ("NOTHING", "LIVE", "")),
        (seen(Liveness.ALIVE, age_s=181), WANTED, ("KILL", "STOPPING", "START_TIMED_OUT")),
        (seen(Liveness.ALIVE, age_s=900, advanced_s=179), WANTED, ("NOTHING", "STARTING", "")),
        (
            seen(Liveness.ALIVE, age_s=900, cpu_s=3.0, advanced_s=181),
            WANTED,
            ("NOTHING", "STARTING", ""),
        ),
        (
            seen(Liveness.ALIVE, age_s=900, cpu_s=2.9, advanced_s=181),
            WANTED,
            ("KILL", "STOPPING", "START_TIMED_OUT"),
        ),
        (
            seen(Liveness.ALIVE, age_s=1801, cpu_s=90.0, advanced_s=1),
            WANTED,
            ("KILL", "STOPPING", "START_TIMED_OUT"),
        ),
        (seen(Liveness.ALIVE, ready=True), UNWANTED, ("TERMINATE", "STOPPING", "NOT_WANTED")),
        (
            seen(Liveness.ALIVE, end_wanted=Reason.GIVEN_UP, ending_s=29),
            WANTED,
            ("TERMINATE", "STOPPING", "GIVEN_UP"),
        ),
        (
            seen(Liveness.ALIVE, end_wanted=Reason.GIVEN_UP, ending_s=31),
            WANTED,
            ("KILL", "STOPPING", "GIVEN_UP"),
        ),
        (seen(Liveness.ORPHANED, age_s=181), WANTED, ("KILL", "STARTING", "")),
        (seen(Liveness.EXITED, exit_=KILLED), WANTED, ("NOTHING", "ENDED", "")),
        (seen(Liveness.EXITED, exit_=FENCED), WANTED, ("NOTHING", "FENCED", "")),
        (seen(Liveness.GONE), UNWANTED, ("NOTHING", "ENDED", "")),
    ],
)
def test_what_is_done(
    one: DriverSeen | None, wanted: StandbyWanted, expected: tuple[str, ...]
) -> None:
    assert decided(one, wanted) == expected


@pytest.mark.parametrize(
    ("one", "able"),
    [
        (seen(Liveness.ALIVE, ready=True, age_s=9999), True),
        (seen(Liveness.ALIVE), True),
        (seen(Liveness.SPAWNING), True),
        (seen(Liveness.ALIVE, age_s=900, advanced_s=179), True),
        (seen(Liveness.ALIVE, age_s=900, advanced_s=181), False),
        (seen(Liveness.ABSENT), False),
        (seen(Liveness.ORPHANED), False),
        (seen(Liveness.EXITED, exit_=KILLED), False),
        (
            replace(seen(Liveness.ALIVE), sighting=Sighting(Liveness.ALIVE, without_files=True)),
            False,
        ),
    ],
)
def test_which_standby_may_take_over(one: DriverSeen, able: bool) -> None:
    assert may_take_over(one, LIMITS, NOW) is able


def test_an_end_that_nobody_saw_is_unknown() -> None:
    assert decide_standby(seen(Liveness.GONE), WANTED, LIMITS, NOW).exit == ExitReport(
        "UNKNOWN", "UNKNOWN", core=False, oom=False, at=NOW.isoformat()
    )


def test_a_standby_that_runs_and_is_wanted_is_left_alone() -> None:
    one = seen(Liveness.ALIVE, ready=True)
    choice = decide_standby(one, WANTED, LIMITS, NOW)
    progress = StartMark(one.created_at)
    assert choice == StandbyDecision(DriverAction.NOTHING, DriverState.LIVE, progress=progress)


@given(st.integers(1, 200))
def test_after_each_death_the_next_launch_waits_longer_and_never_for_ever(deaths: int) -> None:
    wanted = StandbyWanted(may_start=True, deaths=deaths, last_death=NOW)
    later = replace(wanted, deaths=deaths + 1)
    assert wanted.not_before is not None
    assert later.not_before is not None
    assert NOW < wanted.not_before <= later.not_before <= NOW + LONGEST
    assert decide_standby(None, wanted, LIMITS, NOW).action is DriverAction.NOTHING
    assert decide_standby(None, wanted, LIMITS, wanted.not_before).action is DriverAction.LAUNCH


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"standby": "own"}, ""),
        ({"standby": "own", "master": "spark://host:7077"}, "standby needs a local master"),
        (
            {"standby": "own", "kind": "script", "script": {"file": "/code/job.py"}},
            "standby needs defined queries",
        ),
    ],
)
def test_who_can_have_a_standby(spec: dict[str, object], said: str) -> None:
    problems = application_problems(
        ApplicationSpec.model_validate(spec), surroundings=ValidationContext()
    )
    found = [f"{one.field} {one.message}" for one in problems if one.field == "standby"]
    assert [one[: len(said)] for one in found] == ([said] if said else [])


@pytest.mark.parametrize(
    ("proven", "committed", "calm"),
    [
        (None, None, False),
        (0, 0, True),
        (0, None, False),
        (CALM_AFTER.total_seconds(), None, True),
    ],
)
def test_a_run_is_calm_after_its_first_batch_or_a_while_without_data(
    proven: float | None, committed: float | None, calm: bool
) -> None:
    def ago(seconds: float | None) -> datetime | None:
        return None if seconds is None else NOW - timedelta(seconds=seconds)

    assert is_calm(ago(proven), ago(committed), NOW) is calm
