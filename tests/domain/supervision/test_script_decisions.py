"""What supervision decides of an application that runs a script, whatever it can see."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queries.domain.protocol import DriverStatus, ScriptReport, ScriptState
from queries.domain.reasons import Detail
from queries.domain.restart import RestartPolicy
from queries.domain.states import STOPPED_PHASES, Desired, DriverState, Phase, Reason, RestartBlock
from queries.domain.supervision.decide import decide
from queries.domain.supervision.decision import DriverAction
from queries.domain.supervision.observation import (
    DriverSeen,
    Liveness,
    Observation,
    QuerySeen,
    RunSeen,
    ScriptSeen,
    Sighting,
)
from tests.domain.supervision.seen import FREE, LIMITS, NOW, desires, observation, observations
from tests.examples import examples

TAKEN = replace(FREE, starting=2)
RUNNING = ScriptSeen(Desired.RUNNING, Phase.RUNNING, Reason.NONE)
scripts = st.builds(
    ScriptSeen,
    desired=desires,
    phase=st.sampled_from(list(Phase)),
    reason=st.sampled_from(list(Reason)),
)


def seen(script: ScriptSeen = RUNNING, **changes: Any) -> Observation:
    """Return an application with a script, whose driver lives unless `changes` say otherwise."""
    status = DriverStatus(1, 1, "", ready=True, script=ScriptReport(ScriptState.RUNNING))
    driver = DriverSeen(
        id=1,
        epoch=1,
        state=DriverState.LIVE,
        generation=1,
        created_at=NOW,
        sighting=Sighting(Liveness.ALIVE, status=status),
    )
    generations = dict.fromkeys(("generation", "seen_generation", "reached_generation"), 1)
    return observation(script=script, **{"driver": driver, **generations, **changes})


@settings(max_examples=examples(300))
@given(observations, scripts)
def test_a_script_has_one_driver_and_its_queries_are_never_started(
    obs: Observation, script: ScriptSeen
) -> None:
    decision = decide(replace(obs, script=script), NOW)
    assert decision.script is not None
    assert all(choice.open_run is None for choice in decision.queries)
    assert all(choice.restart_block is seen.restart_block for choice, seen in _pairs(decision, obs))
    if decision.driver.action is DriverAction.LAUNCH:
        assert obs.driver is None
        assert script.desired is Desired.RUNNING
        assert not obs.paused
    if script.desired is Desired.STOPPED and obs.driver is None and not obs.silent_host:
        assert decision.script.phase in STOPPED_PHASES


def _pairs(decision: Any, obs: Observation) -> Any:
    fresh = [seen for seen in obs.queries if seen.generation > seen.seen_generation]
    pairs = zip(decision.queries, obs.queries, strict=True)
    return [(choice, each) for choice, each in pairs if each not in fresh]


@pytest.mark.parametrize(
    ("obs", "phase", "reason"),
    [
        (seen(), Phase.RUNNING, Reason.NONE),
        (seen(paused=True), Phase.STOPPING, Reason.SHUTDOWN),
        (seen(generation=2), Phase.STOPPING, Reason.ASKED_RESTART),
        (seen(replace(RUNNING, desired=Desired.STOPPED)), Phase.STOPPING, Reason.ASKED_STOP),
        (seen(silent_host="two"), Phase.UNREACHABLE, Reason.HOST_SILENT),
        (seen(driver=None, silent_host="two"), Phase.PENDING, Reason.HOST_SILENT),
        (seen(driver=None, slots=TAKEN), Phase.PENDING, Reason.WAITS_SLOT),
        (seen(driver=None, paused=True), Phase.PENDING, Reason.SHUTDOWN),
        (seen(driver=None), Phase.STARTING, Reason.WAITS_DRIVER),
        (seen(driver=None, restart_block=RestartBlock.FAILED), Phase.FAILED, Reason.FAILED_FATAL),
        (
            seen(ScriptSeen(Desired.STOPPED, Phase.COMPLETED, Reason.COMPLETED), driver=None),
            Phase.COMPLETED,
            Reason.COMPLETED,
        ),
        (
            seen(
                ScriptSeen(Desired.STOPPED, Phase.COMPLETED, Reason.COMPLETED),
                driver=None,
                generation=2,
            ),
            Phase.STOPPED,
            Reason.STOPPED,
        ),
    ],
)
def test_a_script_is_called_what_it_does(obs: Observation, phase: Phase, reason: Reason) -> None:
    decision = decide(obs, NOW)
    assert decision.script is not None
    assert (decision.script.phase, decision.script.reason) == (phase, reason)


@pytest.mark.parametrize("meanwhile", [{"silent_host": "two"}, {"paused": True}])
def test_a_broken_script_keeps_why_whatever_happens_to_its_host(meanwhile: dict[str, Any]) -> None:
    broken = ScriptSeen(Desired.RUNNING, Phase.ON_HOLD, Reason.PROBE_FAILED)
    later = {
        "driver": None,
        "restart_block": RestartBlock.ON_HOLD,
        "next_attempt_at": NOW + timedelta(minutes=9),
    }
    decision = decide(seen(broken, **later, **meanwhile), NOW)
    assert decision.script is not None
    assert (decision.script.phase, decision.script.reason) == (Phase.ON_HOLD, Reason.PROBE_FAILED)


def found(**changes: Any) -> QuerySeen:
    """Return a query that the script has started."""
    held: dict[str, Any] = {
        "desired": Desired.RUNNING,
        "phase": Phase.RUNNING,
        "phase_reason": Reason.COMMITTED,
        **changes,
    }
    return QuerySeen(
        id=1,
        name="job/counts",
        generation=0,
        seen_generation=0,
        reached_generation=0,
        phase_detail=RUNNING.detail,
        **held,
    )


def test_a_query_ends_with_the_script_that_should_not_run() -> None:
    query = found(run=RunSeen(1, 1, 1, NOW, ends_by_itself=False, committed=True))
    stopped = replace(RUNNING, desired=Desired.STOPPED)
    [choice] = decide(seen(stopped, queries=(query,)), NOW).queries
    assert (choice.phase, choice.reason) == (Phase.STOPPING, Reason.ASKED_STOP)
    assert choice.detail.code is Detail.BATCH_ENDING


def test_a_script_whose_driver_is_not_ready_in_time_starts_again() -> None:
    driver = seen().driver
    assert driver is not None
    starting = Sighting(Liveness.ALIVE, status=DriverStatus(1, 1, "", ready=False))
    driver = replace(driver, state=DriverState.STARTING, sighting=starting)
    late = NOW + timedelta(seconds=LIMITS.start_s + 1)
    decision = decide(seen(driver=driver), late)
    assert decision.driver.action is DriverAction.KILL
    assert decision.script is not None
    assert (decision.script.phase, decision.script.reason) == (
        Phase.STOPPING,
        Reason.START_TIMED_OUT,
    )
    assert decision.script.detail.code is Detail.DRIVER_STUCK


def test_a_stalled_query_ends_the_driver_where_the_policy_says_so() -> None:
    stalled = found(stalled=True)
    policy = RestartPolicy(restart_on_stall=True)
    decision = decide(seen(queries=(stalled,), policy=policy), NOW)
    assert decision.driver.end_wanted is Reason.STALLED
    assert decide(seen(queries=(stalled,)), NOW).driver.end_wanted is Reason.NONE
