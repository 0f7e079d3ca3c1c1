"""Which query ends a shared driver: candidates, turns, and what it takes to hold one."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings

from queries.domain.protocol import DriverStatus, ExitReport, RunState, RunStatus
from queries.domain.reasons import NOTHING, Detail
from queries.domain.states import (
    Candidacy,
    Desired,
    DriverState,
    Phase,
    Reason,
    RestartBlock,
    RunOutcome,
)
from queries.domain.supervision.decide import decide
from queries.domain.supervision.decision import Decision, DriverAction
from queries.domain.supervision.observation import (
    DriverSeen,
    Liveness,
    Observation,
    QuerySeen,
    RunSeen,
    Sighting,
    Suspicion,
)
from queries.domain.supervision.outcomes import DEATHS, START_WINDOW, is_in_a_row
from tests.domain.supervision.seen import NOW, observation, observations
from tests.examples import examples

BEFORE = NOW - timedelta(seconds=5)
WAITING = RunStatus(run=10, query=1, state=RunState.STARTING, waits_until=NOW.isoformat())


def query(number: int, run: RunSeen | None = None, **fields: Any) -> QuerySeen:
    phase = Phase.STARTING if run else Phase.PENDING
    base = QuerySeen(
        number, f"q{number}", Desired.RUNNING, 1, 1, 1, phase, Reason.DRIVER_DIED, NOTHING, run=run
    )
    return replace(base, **fields)


def starting(number: int, *, age_s: float = 5, **fields: Any) -> QuerySeen:
    run = RunSeen(
        id=number * 10,
        driver=1,
        generation=1,
        created_at=NOW - timedelta(seconds=age_s),
        ends_by_itself=False,
        status=RunStatus(run=number * 10, query=number, state=RunState.STARTING),
    )
    return query(number, replace(run, **fields))


def proven(number: int, **fields: Any) -> QuerySeen:
    return starting(number, proven_at=BEFORE, committed=True, **fields)


def seen(*queries: QuerySeen, exit_: tuple[str, str] | None = None, **fields: Any) -> Observation:
    """Return an application after three deaths, its driver alive, or gone with that exit."""
    status = DriverStatus(epoch=1, applied_generation=1, at=NOW.isoformat(), ready=True)
    report = ExitReport(*exit_, core=False, oom=False, at=NOW.isoformat()) if exit_ else None
    sighting = Sighting(Liveness.EXITED if exit_ else Liveness.ALIVE, status=status, exit=report)
    driver = DriverSeen(1, 1, DriverState.LIVE, 0, BEFORE, sighting)
    deaths = {"failures": DEATHS, "deaths": fields.get("failures", DEATHS)}
    return observation(*queries, **({"driver": driver} | deaths | fields))


def opened(decision: Decision) -> list[int]:
    return [choice.query for choice in decision.queries if choice.open_run]


def held(decision: Decision) -> list[int]:
    return [
        choice.query for choice in decision.queries if choice.restart_block is RestartBlock.ON_HOLD
    ]


NONE, START, BATCH = Candidacy.NONE, Candidacy.STARTING, Candidacy.BATCH


@pytest.mark.parametrize(
    ("runs", "in_a_row"),
    [
        ([], True),  # it did not get that far
        ([(False, NONE)], True),
        ([(True, NONE)], False),
        ([(True, BATCH)], False),
        ([(True, BATCH), (True, NONE)], False),
        ([(True, NONE), (False, NONE)], False),
        ([(True, NONE), (False, START)], True),  # its neighbour's commits do not clear it
        ([(True, BATCH), (False, Candidacy.UNKNOWN)], True),
    ],
)
def test_which_deaths_are_in_a_row(runs: list[tuple[bool, Candidacy]], in_a_row: bool) -> None:
    assert is_in_a_row(runs) is in_a_row


def test_a_death_after_commits_ends_the_row_and_is_still_a_failure() -> None:
    queries = (proven(1, in_flight=7), proven(2))
    decision = decide(seen(*queries, exit_=("1", "0"), failures=2, deaths=2), NOW)
    assert decision.failures == 3
    after = seen(query(1), query(2), driver=None, failures=3, deaths=0)
    assert len(opened(decide(after, NOW))) == 2


@pytest.mark.parametrize(
    ("run", "was"),
    [
        (starting(1, status=None), Candidacy.NONE),
        (starting(1), Candidacy.STARTING),
        (starting(1, status=WAITING), Candidacy.NONE),
        (proven(1), Candidacy.NONE),
        (proven(1, in_flight=7), Candidacy.BATCH),
        (proven(1, in_flight_known=False), Candidacy.UNKNOWN),
    ],
)
def test_a_run_is_a_candidate_if_it_was_starting_or_may_have_had_a_batch_in_flight(
    run: QuerySeen, was: Candidacy
) -> None:
    decision = decide(seen(run, query(2), exit_=("1", "0"), failures=0), NOW)
    ended = decision.queries[0].ended
    assert ended is not None
    assert (ended.candidacy, ended.outcome) == (was, RunOutcome.DRIVER_ENDED)
    assert ended.batch == (7 if was is Candidacy.BATCH else None)


def test_a_query_that_was_to_stop_is_no_culprit() -> None:
    stopped = replace(starting(1), desired=Desired.STOPPED)
    decision = decide(seen(stopped, query(2), query(3), exit_=("1", "0")), NOW)
    assert held(decision) == []
    assert decision.queries[0].failures == stopped.failures


def test_an_end_that_was_asked_for_has_no_candidates() -> None:
    obs = seen(starting(1), query(2), exit_=("0", "0"))
    assert obs.driver is not None
    asked = replace(obs, driver=replace(obs.driver, end_wanted=Reason.REPLACED))
    ended = decide(asked, NOW).queries[0].ended
    assert ended is not None
    assert ended.candidacy is Candidacy.NONE


def test_before_the_third_death_all_start_at_once() -> None:
    assert opened(decide(seen(query(1), query(2), failures=DEATHS - 1), NOW)) == [1, 2]
    assert opened(decide(seen(query(1), query(2), query(3)), NOW)) == [1]


@pytest.mark.parametrize(
    "other",
    [
        query(2, desired=Desired.STOPPED, phase=Phase.STOPPED),
        query(2, restart_block=RestartBlock.FAILED, phase=Phase.FAILED),
        query(2, restart_block=RestartBlock.ON_HOLD, phase=Phase.ON_HOLD),
    ],
)
def test_a_query_that_shares_its_driver_with_none_that_may_run_does_not_wait(
    other: QuerySeen,
) -> None:
    first = starting(1)
    obs = seen(first, other, exit_=("1", "0"))
    assert held(decide(obs, NOW)) == held(decide(replace(obs, queries=(other,)), NOW))


def test_the_next_starts_once_the_one_before_has_committed_or_had_its_time() -> None:
    def next_after(first: QuerySeen) -> list[int]:
        return opened(decide(seen(first, query(2), query(3)), NOW))

    assert next_after(starting(1)) == []
    assert next_after(proven(1)) == [2]
    assert next_after(starting(1, age_s=START_WINDOW.total_seconds())) == [2]


def test_none_starts_before_the_drivers_session_is_up() -> None:
    launched = decide(seen(query(1), query(2), driver=None), NOW)
    assert launched.driver.action is DriverAction.LAUNCH
    assert opened(launched) == []
    assert {choice.reason for choice in launched.queries} == {Reason.WAITS_TURN}
    assert {choice.detail.code for choice in launched.queries} == {Detail.TURN_AFTER_DRIVER}


def test_a_query_that_waits_says_whose_turn_it_is_and_is_looked_at_soon() -> None:
    decision = decide(seen(starting(1), query(2)), NOW)
    assert (decision.queries[1].phase, decision.queries[1].reason) == (
        Phase.PENDING,
        Reason.WAITS_TURN,
    )
    assert decision.queries[1].detail.params == {"deaths": DEATHS, "name": "q1"}
    assert decision.wake_at == NOW + timedelta(seconds=1)


def test_the_wait_for_the_next_attempt_is_slept_through() -> None:
    later = NOW + timedelta(seconds=300)
    decision = decide(seen(query(1), query(2), driver=None, next_attempt_at=later), NOW)
    assert {choice.phase for choice in decision.queries} == {Phase.BACKOFF}
    assert decision.wake_at == later


def test_a_turn_that_ends_with_a_commit_is_seen_soon_although_all_is_calm() -> None:
    decision = decide(seen(proven(1), starting(2), query(3)), NOW)
    assert opened(decision) == []
    assert decision.wake_at == NOW + timedelta(seconds=1)


def test_those_that_looked_guilty_at_the_last_death_start_first() -> None:
    def suspect(number: int, last: Candidacy, run: int = 0) -> QuerySeen:
        return query(number, suspicion=Suspicion(last, run))

    first = [
        (suspect(1, Candidacy.NONE), suspect(2, Candidacy.UNKNOWN)),
        (suspect(1, Candidacy.UNKNOWN), suspect(2, Candidacy.BATCH)),
        (suspect(1, Candidacy.BATCH), suspect(2, Candidacy.STARTING)),
        (suspect(1, Candidacy.STARTING, 7), suspect(2, Candidacy.STARTING, 8)),
    ]
    assert all(opened(decide(seen(*pair), NOW)) == [2] for pair in first)


@pytest.mark.guarantee("G-RESTART-2")
def test_the_only_one_under_way_in_its_start_is_held_with_the_evidence() -> None:
    decision = decide(seen(starting(1), proven(2), exit_=("1", "SIGKILL")), NOW)
    assert held(decision) == [1]
    choice = decision.queries[0]
    assert (choice.phase, choice.reason) == (Phase.ON_HOLD, Reason.KILLS_DRIVER)
    assert choice.next_attempt_at is None
    assert choice.detail.params == {
        "deaths": DEATHS + 1,
        "exit": "Driver died: Python exited with 1, JVM killed by SIGKILL",
    }
    assert choice.ended is not None
    assert choice.ended.fault is not None
    assert choice.ended.fault.classified.category == "ends its driver"
    assert "separate application" in choice.ended.fault.classified.way_out
    assert decision.next_attempt_at is None, "the others go on at once"


@pytest.mark.guarantee("G-RESTART-2")
@pytest.mark.parametrize(
    "neighbour", [starting(2, age_s=90), proven(2, in_flight=4), proven(2, in_flight_known=False)]
)
def test_nobody_is_held_while_a_neighbour_may_have_done_it(neighbour: QuerySeen) -> None:
    assert held(decide(seen(starting(1), neighbour, exit_=("1", "SIGKILL")), NOW)) == []


def test_nobody_is_held_for_a_late_death_or_one_that_was_asked_for_or_before_the_third() -> None:
    late = proven(1, in_flight=4)
    assert held(decide(seen(late, proven(2), exit_=("71", "3")), NOW)) == []
    early = seen(starting(1), proven(2), exit_=("1", "0"), failures=DEATHS - 1)
    assert held(decide(early, NOW)) == []
    obs = seen(starting(1), proven(2), exit_=("1", "0"))
    assert obs.driver is not None
    asked = replace(obs.driver, end_wanted=Reason.REPLACED)
    assert held(decide(replace(obs, driver=asked), NOW)) == []
    stopping = starting(1, stop_asked_at=BEFORE)
    assert held(decide(seen(stopping, proven(2), exit_=("1", "0")), NOW)) == []


@pytest.mark.guarantee("G-RESTART-2")
@pytest.mark.parametrize(
    ("exit_", "deaths"),
    [
        (("1", "SIGKILL"), 1),
        (("SIGSEGV", "SIGKILL"), 1),
        (("71", "SIGSEGV"), 1),
        (("71", "3"), 1),
        (("71", "SIGKILL"), 2),
        (("SIGKILL", "SIGKILL"), 2),
        (("SIGTERM", "0"), 2),
        (("74", "143"), 2),
        (("UNKNOWN", "UNKNOWN"), 2),
    ],
)
def test_an_exit_that_somebody_outside_can_cause_must_happen_twice(
    exit_: tuple[str, str], deaths: int
) -> None:
    once = decide(seen(starting(1), proven(2), exit_=exit_), NOW)
    assert held(once) == ([1] if deaths == 1 else [])
    again = replace(starting(1), suspicion=Suspicion(Candidacy.STARTING, 10, lone=1))
    assert held(decide(seen(again, proven(2), exit_=exit_), NOW)) == [1]


def test_a_death_of_a_full_memory_counts_whatever_the_signal() -> None:
    obs = seen(starting(1), proven(2), exit_=("71", "SIGKILL"))
    assert obs.driver is not None
    assert obs.driver.sighting.exit is not None
    full = replace(obs.driver.sighting, exit=replace(obs.driver.sighting.exit, oom=True))
    assert held(decide(replace(obs, driver=replace(obs.driver, sighting=full)), NOW)) == [1]


def test_a_held_culprit_keeps_its_reason_and_starts_when_a_person_says_so() -> None:
    culprit = query(
        1,
        restart_block=RestartBlock.ON_HOLD,
        phase=Phase.ON_HOLD,
        phase_reason=Reason.KILLS_DRIVER,
        failures=1,
    )
    waiting = decide(seen(culprit, proven(2)), NOW)
    assert waiting.queries[0].reason is Reason.KILLS_DRIVER
    assert opened(waiting) == []
    started = decide(seen(replace(culprit, generation=2), proven(2)), NOW)
    assert opened(started) == [1]


@settings(max_examples=examples(400))
@given(observations)
def test_at_most_one_query_is_held_at_a_death_and_only_after_the_third(obs: Observation) -> None:
    decision = decide(obs, NOW)
    new = [
        choice
        for before, choice in zip(obs.queries, decision.queries, strict=True)
        if choice.reason is Reason.KILLS_DRIVER and before.phase_reason is not Reason.KILLS_DRIVER
    ]
    assert len(new) <= 1
    if new:
        assert obs.deaths >= DEATHS
        assert decision.driver.fault is not None
        assert new[0].ended is not None
        assert new[0].ended.candidacy is Candidacy.STARTING


@settings(max_examples=examples(400))
@given(observations)
def test_after_the_third_death_at_most_one_query_starts_at_a_time(obs: Observation) -> None:
    decision = decide(obs, NOW)
    may_run = [
        q
        for q in obs.queries
        if q.desired is Desired.RUNNING and q.restart_block is RestartBlock.NONE
    ]
    fresh = decision.failures < obs.failures  # the counters were cleared
    if obs.deaths >= DEATHS and not fresh and decision.driver.exit is None and len(may_run) > 1:
        assert len(opened(decision)) <= 1
