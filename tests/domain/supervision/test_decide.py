"""What supervision decides, over every state it can see: properties, and the rules' corners."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings

from queries.domain.protocol import (
    EXIT_CHECKPOINT_LOST,
    DriverStatus,
    ExecutorsWanted,
    ExitReport,
    Hangs,
    RunError,
    RunState,
    RunStatus,
    Want,
)
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.restart import Earlier, RestartPolicy
from queries.domain.states import (
    RESTING_PHASES,
    Desired,
    DriverState,
    Phase,
    Reason,
    RestartBlock,
    RunOutcome,
)
from queries.domain.supervision.decide import WATCHFUL, decide
from queries.domain.supervision.decision import Decision, DriverAction
from queries.domain.supervision.observation import (
    DriverSeen,
    Liveness,
    Observation,
    QuerySeen,
    RunSeen,
    Sighting,
    Slots,
)
from queries.domain.supervision.phases import TRANSITIONS
from tests.domain.supervision.seen import BREAKS, ERRORS, LIMITS, NOW, observation, observations
from tests.examples import examples


@settings(max_examples=examples(400))
@given(observations)
def test_at_most_one_driver_and_one_run_a_query_whatever_is_seen(obs: Observation) -> None:
    decision = decide(obs, NOW)
    begins = decision.driver.action in {DriverAction.LAUNCH, DriverAction.TAKE_OVER}
    assert obs.driver is None or not begins
    for seen, choice in zip(obs.queries, decision.queries, strict=True):
        if choice.open_run is not None:
            assert seen.run is None or choice.ended is not None
            assert seen.desired is Desired.RUNNING
            assert obs.driver is not None or begins
            assert decision.driver.exit is None


@settings(max_examples=examples(400))
@given(observations)
def test_no_run_on_a_remote_checkpoint_begins_where_our_classes_are_missing(
    obs: Observation,
) -> None:
    for seen, choice in zip(obs.queries, decide(obs, NOW).queries, strict=True):
        assert not (obs.no_classes and seen.remote and choice.open_run is not None)


@settings(max_examples=examples(400))
@given(observations)
def test_no_decision_depends_on_what_is_said(obs: Observation) -> None:
    """The words beside a reason are handed on, never read."""

    def wordless(seen: Observation) -> Decision:
        decision = decide(seen, NOW)
        silent = tuple(replace(choice, detail=NOTHING) for choice in decision.queries)
        return replace(decision, queries=silent, restart_block_reason=NOTHING)

    other = Because(Detail.STEP, {"note": "waiting for the checkpoint's lock"})
    said = tuple(replace(query, phase_detail=other) for query in obs.queries)
    assert wordless(replace(obs, queries=said, restart_block_reason=other)) == wordless(obs)


@settings(max_examples=examples(400))
@given(observations)
def test_nothing_starts_while_an_orphan_or_an_unseen_host_may_run_it(obs: Observation) -> None:
    decision = decide(obs, NOW)
    if obs.driver and obs.driver.sighting.liveness in {Liveness.ORPHANED, Liveness.ELSEWHERE}:
        assert all(choice.open_run is None for choice in decision.queries)
        assert decision.driver.exit is None
    if obs.silent_host:
        assert all(choice.open_run is None for choice in decision.queries)
        assert decision.driver.action is DriverAction.NOTHING


@settings(max_examples=examples(400))
@given(observations)
def test_what_waits_for_a_silent_host_says_which(obs: Observation) -> None:
    decision = decide(obs, NOW)
    for seen, choice in zip(obs.queries, decision.queries, strict=True):
        if choice.reason is Reason.HOST_SILENT and choice.phase is not Phase.STOPPED:
            assert obs.silent_host in choice.detail.text
            open_run = seen.run is not None and choice.ended is None
            assert choice.phase is (Phase.UNREACHABLE if open_run else Phase.PENDING)
        elif obs.silent_host and seen.run is not None and choice.ended is None:
            raise AssertionError(f"{seen.name} may run on a silent host: {choice.phase}")


@settings(max_examples=examples(400))
@given(observations)
def test_what_is_broken_says_what_broke_it(obs: Observation) -> None:
    for choice in decide(obs, NOW).queries:
        assert choice.phase is not Phase.ON_HOLD or choice.reason in BREAKS


@settings(max_examples=examples(400))
@given(observations)
def test_every_end_of_a_driver_has_an_exit_and_unknown_is_never_zero(obs: Observation) -> None:
    decision = decide(obs, NOW)
    if decision.driver.exit is not None:
        assert obs.driver is not None
        if obs.driver.sighting.exit is None:
            assert decision.driver.exit.python == "UNKNOWN"
        assert decision.driver.state is DriverState.ENDED
        runs = [(s, c) for s, c in zip(obs.queries, decision.queries, strict=True) if s.run]
        assert all(choice.ended is not None for _, choice in runs)


@settings(max_examples=examples(400))
@given(observations)
def test_whatever_is_wanted_and_possible_is_looked_at_again(obs: Observation) -> None:
    decision = decide(obs, NOW)
    for seen, choice in zip(obs.queries, decision.queries, strict=True):
        unfinished = choice.phase not in RESTING_PHASES
        if unfinished and not (obs.paused and seen.run is None):
            held = choice.phase is Phase.ON_HOLD and choice.next_attempt_at is None
            assert decision.wake_at is not None or decision.again or held


@settings(max_examples=examples(400))
@given(observations)
def test_a_stopped_query_never_starts_and_its_failures_climb_no_ladder(obs: Observation) -> None:
    decision = decide(obs, NOW)
    for seen, choice in zip(obs.queries, decision.queries, strict=True):
        if seen.desired is Desired.STOPPED:
            assert choice.open_run is None
            assert choice.failures <= seen.failures
            assert choice.want is not Want.RUN or seen.run is None or choice.ended is not None


@settings(max_examples=examples(600))
@given(observations)
def test_phases_change_only_along_the_diagram(obs: Observation) -> None:
    decision = decide(obs, NOW)
    for seen, choice in zip(obs.queries, decision.queries, strict=True):
        fits = seen.desired is Desired.RUNNING or seen.run is not None
        if seen.phase is Phase.STOPPING and seen.run is not None:  # else no row says so
            fits = fits and seen.run.stop_asked_at is not None
        if choice.phase is not seen.phase and fits and seen.generation == seen.seen_generation:
            assert (seen.phase, choice.phase) in TRANSITIONS


@settings(max_examples=examples(200))
@given(observations)
def test_deciding_is_pure_and_an_end_is_told_once(obs: Observation) -> None:
    assert decide(obs, NOW) == decide(obs, NOW)
    for choice in decide(obs, NOW).queries:
        if choice.ended is not None and choice.ended.outcome is RunOutcome.FAILED:
            assert choice.ended.fault is not None


# --- corners --------------------------------------------------------------------------


def _query(**fields: Any) -> QuerySeen:
    base = QuerySeen(
        id=1,
        name="q",
        desired=Desired.RUNNING,
        generation=1,
        seen_generation=1,
        reached_generation=1,
        phase=Phase.PENDING,
        phase_reason=Reason.NONE,
        phase_detail=NOTHING,
    )
    return replace(base, **fields)


def _obs(query: QuerySeen, driver: DriverSeen | None = None, **fields: Any) -> Observation:
    return observation(query, driver=driver, **fields)


def _driver(liveness: Liveness = Liveness.ALIVE, *, ready: bool = True) -> DriverSeen:
    status = DriverStatus(epoch=1, applied_generation=1, at=NOW.isoformat(), ready=ready)
    return DriverSeen(
        id=1,
        epoch=1,
        state=DriverState.LIVE,
        generation=0,
        created_at=NOW - timedelta(seconds=600),
        sighting=Sighting(liveness=liveness, status=status),
    )


def _only(decision: Decision) -> Any:
    return decision.queries[0]


def test_a_standby_takes_over_although_a_new_driver_would_have_to_wait() -> None:
    full = Slots(
        starting=2, limit=2, memory_used_mb=4000, memory_budget_mb=4096, memory_needed_mb=1024
    )
    decision = decide(_obs(_query(), slots=full, standby=True), NOW)
    assert decision.driver.action is DriverAction.TAKE_OVER
    assert _only(decision).open_run is not None
    waits = decide(_obs(_query(), slots=full, standby=True, code_ready=False), NOW)
    assert waits.driver.action is DriverAction.PREPARE


def test_a_query_waits_for_memory_and_says_how_much() -> None:
    choice = _only(decide(_obs(_query(), slots=Slots(0, 2, 4000, 4096, 1024)), NOW))
    assert (choice.phase, choice.reason) == (Phase.PENDING, Reason.WAITS_MEMORY)
    needs = {"needed": 1024, "used": 4000, "budget": 4096}
    assert choice.detail == Because(Detail.MEMORY_TAKEN, needs)


def test_a_query_waits_for_its_code_which_is_put_into_place() -> None:
    decision = decide(_obs(_query(), code_ready=False), NOW)
    choice = _only(decision)
    assert (choice.phase, choice.reason) == (Phase.PENDING, Reason.WAITS_CODE)
    assert choice.detail == Because(Detail.CODE_COMING)
    assert decision.driver.action is DriverAction.PREPARE
    assert decision.wake_at == NOW + WATCHFUL


WITHOUT = "There is no Java in JAVA_HOME or PATH"


@pytest.mark.parametrize("standby", [True, False])
def test_a_query_whose_checkpoint_is_not_local_waits_for_our_classes_and_says_why(
    standby: bool,
) -> None:
    obs = _obs(_query(remote=True), no_classes=WITHOUT, standby=standby)
    coming = _only(decide(obs, NOW))
    assert (coming.phase, coming.reason) == (Phase.PENDING, Reason.WAITS_CLASSES)
    assert coming.detail == Because(Detail.CLASSES_COMING)
    decision = decide(replace(obs, classes_failed=True), NOW)
    choice = _only(decision)
    assert (choice.phase, choice.reason) == (Phase.PENDING, Reason.WAITS_CLASSES)
    assert choice.detail == Because(Detail.CLASSES_MISSING, {"why": WITHOUT})
    assert WITHOUT in choice.detail.text
    assert (decision.driver.action, choice.open_run) == (DriverAction.COMPILE, None)
    assert decision.wake_at == NOW + WATCHFUL


def test_its_neighbour_waits_with_it_even_if_the_query_itself_is_only_retried_later() -> None:
    later = _query(remote=True, next_attempt_at=NOW + timedelta(seconds=60))
    local = replace(_query(), id=later.id + 1, name="local")
    decision = decide(_obs(later, queries=(later, local), no_classes=WITHOUT), NOW)
    assert decision.driver.action is DriverAction.COMPILE
    assert decision.queries[1].reason is Reason.WAITS_CLASSES


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"remote": True, "desired": Desired.STOPPED},
        {"remote": True, "restart_block": RestartBlock.FAILED, "phase": Phase.FAILED},
        {"remote": True, "is_dropped": True},
    ],
)
def test_other_queries_go_without_our_classes_if_they_cannot_be_compiled(
    query: dict[str, Any],
) -> None:
    other = replace(_query(), id=99, name="local")
    seen = _query(**query)
    obs = _obs(seen, queries=(seen, other), no_classes=WITHOUT)
    assert decide(obs, NOW).driver.action is DriverAction.COMPILE  # it may take a second
    ahead = decide(replace(obs, standby=True), NOW)
    assert ahead.driver.action is DriverAction.TAKE_OVER
    failed = decide(replace(obs, classes_failed=True), NOW)
    assert failed.driver.action is DriverAction.LAUNCH


@pytest.mark.parametrize(("used", "has_memory"), [(3072, True), (3073, False)])
def test_whether_there_is_memory_does_not_depend_on_free_slots(used: int, has_memory: bool) -> None:
    for starting in (0, 2):
        slots = Slots(starting, 2, used, memory_budget_mb=4096, memory_needed_mb=1024)
        assert slots.has_memory is has_memory


def test_a_driver_larger_than_the_budget_starts_when_it_is_alone() -> None:
    decision = decide(_obs(_query(), slots=Slots(0, 2, 0, 512, 1024)), NOW)
    assert decision.driver.action is DriverAction.LAUNCH


def test_a_query_that_spark_does_not_start_is_stopped_after_the_deadline() -> None:
    run = RunSeen(1, 1, 1, NOW - timedelta(seconds=200), False)
    query = _query(phase=Phase.STARTING, run=run)
    choice = _only(decide(_obs(query, _driver()), NOW))
    assert choice.want is Want.STOP
    assert choice.phase is Phase.STOPPING


def test_a_stop_that_hangs_in_a_shared_driver_says_what_ends_it() -> None:
    asked = NOW - timedelta(seconds=400)
    run = RunSeen(1, 1, 1, asked, False, proven_at=asked, committed=True, stop_asked_at=asked)
    stuck = _query(desired=Desired.STOPPED, phase=Phase.STOPPING, run=run)
    neighbour = _query(
        id=2,
        name="q2",
        phase=Phase.RUNNING,
        run=RunSeen(2, 1, 1, asked, False, asked, committed=True),
    )
    decision = decide(_obs(stuck, _driver(), queries=(stuck, neighbour)), NOW)
    assert decision.queries[0].reason is Reason.STUCK
    assert "which also restarts q2" in decision.queries[0].detail.text
    assert decision.queries[1].phase is Phase.RUNNING
    assert decision.driver.end_wanted is Reason.NONE
    alone = decide(_obs(stuck, _driver()), NOW)
    assert alone.driver.end_wanted is Reason.NOT_WANTED
    assert alone.driver.action is DriverAction.TERMINATE  # and killed where that does not help


def test_a_start_that_hangs_gets_no_second_run_and_ends_a_driver_that_has_no_other() -> None:
    hung = _query(name="hung", phase=Phase.BACKOFF, failures=1, hangs=Hangs.START)
    others = [
        _query(id=number, name=f"q{number}", phase=Phase.RUNNING, run=replace(_run(), id=number))
        for number in (2, 3, 4)
    ]
    shared = decide(_obs(hung, _driver(), queries=(hung, *others)), NOW)
    choice = shared.queries[0]
    assert (choice.phase, choice.reason) == (Phase.PENDING, Reason.WAITS_THREAD)
    assert choice.open_run is None
    assert "this also restarts q2, q3 and q4" in choice.detail.text
    assert shared.driver.end_wanted is Reason.NONE
    alone = decide(_obs(hung, _driver()), NOW)
    assert alone.driver.end_wanted is Reason.HANGS
    assert alone.queries[0].open_run is None
    gone = decide(_obs(hung, _driver(Liveness.GONE)), NOW)
    assert gone.queries[0].phase is not Phase.STOPPING
    stopped = replace(hung, desired=Desired.STOPPED)
    choice = decide(_obs(stopped, _driver(), queries=(stopped, *others)), NOW).queries[0]
    assert (choice.phase, choice.reason) == (Phase.STOPPING, Reason.STUCK)


def test_a_stalled_query_is_restarted_only_where_its_policy_says_so() -> None:
    before = NOW - timedelta(seconds=4000)
    run = RunSeen(1, 1, 1, before, False, before, committed=True)
    query = _query(phase=Phase.RUNNING, run=run, stalled=True)
    assert _only(decide(_obs(query, _driver()), NOW)).want is Want.RUN
    policy = RestartPolicy(restart_on_stall=True)
    choice = _only(decide(_obs(query, _driver(), policy=policy), NOW))
    assert (choice.want, choice.phase, choice.reason) == (
        Want.STOP,
        Phase.STOPPING,
        Reason.STALLED,
    )
    ended = replace(query, phase=Phase.STOPPING, phase_reason=Reason.STALLED, run=None)
    decision = decide(_obs(ended, _driver(), policy=policy), NOW)
    assert _only(decision).open_run is Reason.STALLED


@pytest.mark.parametrize(
    ("python", "jvm"), [("FENCED", "FENCED"), ("71", str(EXIT_CHECKPOINT_LOST))]
)
def test_a_driver_fenced_by_a_later_one_is_no_failure(python: str, jvm: str) -> None:
    report = ExitReport(python, jvm, False, False, NOW.isoformat())
    driver = replace(_driver(), sighting=Sighting(Liveness.EXITED, exit=report))
    decision = decide(_obs(_query(), driver), NOW)
    assert (decision.driver.state, decision.driver.fault) == (DriverState.FENCED, None)
    assert decision.failures == 0


def test_a_stop_goes_on_where_its_cause_is_gone() -> None:
    """The policy for stalls was switched off meanwhile; a start that was given up returned."""
    asked = NOW - timedelta(seconds=30)
    stalled = RunSeen(1, 1, 1, asked, False, proven_at=asked, committed=True, stop_asked_at=asked)
    query = _query(phase=Phase.STOPPING, phase_reason=Reason.STALLED, run=stalled)
    off = RestartPolicy(restart_on_stall=False)
    choice = _only(decide(_obs(query, _driver(), policy=off), NOW))
    assert (choice.want, choice.phase, choice.reason) == (
        Want.STOP,
        Phase.STOPPING,
        Reason.STALLED,
    )
    began = NOW - timedelta(seconds=400)
    status = RunStatus(1, 1, RunState.STOPPING, asked_for=Want.STOP, started_at=NOW.isoformat())
    late = RunSeen(1, 1, 1, began, False, status=status, stop_asked_at=asked)
    query = _query(phase=Phase.STOPPING, phase_reason=Reason.ASKED_RESTART, run=late)
    choice = _only(decide(_obs(query, _driver()), NOW))
    assert (choice.want, choice.phase) == (Want.STOP, Phase.STOPPING)


def _run(**status: Any) -> RunSeen:
    told = RunStatus(run=1, query=1, state=RunState.STARTING, **status) if status else None
    return RunSeen(1, 1, 1, NOW, False, status=told)


def test_a_query_in_its_start_says_what_it_waits_for() -> None:
    def reason(run: RunSeen, *, ready: bool = True) -> tuple[Reason, Because]:
        driver = replace(_driver(ready=ready), created_at=NOW)
        choice = _only(decide(_obs(_query(phase=Phase.STARTING, run=run), driver), NOW))
        assert choice.phase is Phase.STARTING
        return choice.reason, choice.detail

    assert reason(_run(), ready=False)[1] == Because(Detail.SESSION_STARTING)
    assert reason(_run())[1] == Because(Detail.QUERY_BUILDING)
    assert reason(_run(started_at=NOW.isoformat()))[0] is Reason.WAITS_COMMIT
    for seconds, trigger, says in (
        (29, "continuous", Because(Detail.UNPROVEN)),
        (
            30,
            "continuous",
            Because(Detail.NO_CORES, {"what": "continuous epoch", "since": "02:59:30"}),
        ),
        (45, "real_time", Because(Detail.NO_CORES, {"what": "batch", "since": "02:59:15"})),
        (900, "processing_time", Because(Detail.UNPROVEN)),
    ):
        began = NOW - timedelta(seconds=seconds)
        waiting = replace(_run(started_at=began.isoformat()), trigger=trigger)
        assert reason(waiting)[1] == says


def test_a_start_that_waits_for_a_former_owner_says_until_when_and_is_not_late() -> None:
    began = NOW - timedelta(seconds=LIMITS.start_s + 1)
    until = NOW + timedelta(seconds=5)
    run = replace(_run(waits_until=until.isoformat()), created_at=began)
    query = _query(phase=Phase.STARTING, run=run)
    choice = _only(decide(_obs(query, _driver()), NOW))
    assert (choice.want, choice.phase, choice.reason) == (
        Want.RUN,
        Phase.STARTING,
        Reason.WAITS_LOCK,
    )
    assert choice.detail == Because(Detail.FORMER_MAY_RUN, {"until": "03:00:05"})
    late = until + timedelta(seconds=LIMITS.start_s + 1)
    assert _only(decide(_obs(query, _driver()), late)).reason is Reason.START_TIMED_OUT


def test_a_query_without_an_executor_says_what_was_asked_for() -> None:
    driver = _driver()
    status = driver.sighting.status
    assert status is not None
    told = replace(status, wanted=ExecutorsWanted(NOW.isoformat(), 8192, 1, ((1, 1536),)))
    driver = replace(driver, sighting=replace(driver.sighting, status=told))
    run = _run(started_at=NOW.isoformat())
    choice = _only(decide(_obs(_query(phase=Phase.STARTING, run=run), driver), NOW))
    assert choice.reason is Reason.WAITS_EXECUTOR
    assert "The driver requests executors of 8192 MB and 1 core" in choice.detail.text


def test_a_session_that_yarn_does_not_begin_says_what_was_asked_for() -> None:
    driver = replace(_driver(ready=False), created_at=NOW)
    status = driver.sighting.status or DriverStatus(
        epoch=1, applied_generation=0, at=NOW.isoformat()
    )
    wanted = ExecutorsWanted(NOW.isoformat(), 8192, 1, ((1, 1536),), application_master=True)
    sighting = replace(driver.sighting, status=replace(status, wanted=wanted))
    waiting = _query(phase=Phase.STARTING, run=_run())
    choice = _only(decide(_obs(waiting, replace(driver, sighting=sighting)), NOW))
    assert choice.reason is Reason.WAITS_DRIVER
    assert "YARN has not started its application master" in choice.detail.text


def test_a_driver_whose_host_was_declared_gone_is_killed_where_it_is_seen_again() -> None:
    driver = replace(_driver(), end_wanted=Reason.HOST_GONE, end_wanted_at=NOW)
    run = _run(started_at=NOW.isoformat())
    decision = decide(_obs(_query(phase=Phase.UNREACHABLE, run=run), driver), NOW)
    assert decision.driver.action is DriverAction.KILL


def test_a_query_whose_source_does_not_answer_is_not_running_and_says_since_when() -> None:
    run = _run(started_at=NOW.isoformat())
    choice = _only(decide(_obs(_query(run=run, source_unreachable_since=NOW), _driver()), NOW))
    assert (choice.phase, choice.reason) == (Phase.STARTING, Reason.WAITS_SOURCE)
    assert choice.detail == Because(Detail.SOURCE_SILENT, {"since": f"{NOW:%H:%M:%S}"})


def test_a_shim_that_has_just_taken_a_driver_is_waited_for_and_then_killed() -> None:
    driver = replace(_driver(Liveness.SPAWNING, ready=False), created_at=NOW)
    driver = replace(driver, sighting=Sighting(Liveness.SPAWNING))
    assert decide(_obs(_query(), driver), NOW).driver.action is DriverAction.NOTHING
    late = decide(_obs(_query(), driver), NOW + timedelta(seconds=200)).driver
    assert (late.action, late.end_wanted) == (DriverAction.KILL, Reason.START_TIMED_OUT)


def test_a_driver_that_was_up_is_not_killed_because_its_files_are_away() -> None:
    away = Sighting(Liveness.ALIVE, without_files=True)
    up = replace(_driver(), sighting=away)
    run = replace(_run(), proven_at=NOW, committed=True, status=None)
    decision = decide(_obs(_query(run=run, phase=Phase.RUNNING), up), NOW)
    assert (decision.driver.action, decision.driver.exit) == (DriverAction.NOTHING, None)
    assert (_only(decision).phase, _only(decision).ended) == (Phase.RUNNING, None)
    starting = replace(up, state=DriverState.STARTING)
    assert decide(_obs(_query(), starting), NOW).driver.action is DriverAction.KILL


def test_a_driver_is_not_pressed_before_its_deadline_and_gets_no_run_while_it_is_killed() -> None:
    young = replace(_driver(ready=False), created_at=NOW)
    assert decide(_obs(_query(), young), NOW).driver.action is DriverAction.NOTHING
    orphaned = replace(_driver(), sighting=Sighting(Liveness.ORPHANED))
    decision = decide(_obs(_query(), orphaned), NOW)
    assert decision.driver.action is DriverAction.KILL
    assert _only(decision).open_run is None


def test_a_driver_that_leaves_too_slowly_is_told_and_then_killed() -> None:
    ending = replace(_driver(), end_wanted=Reason.NOT_WANTED, end_wanted_at=NOW)
    stopped = _query(desired=Desired.STOPPED, phase=Phase.STOPPED)

    def after(seconds: int) -> DriverAction:
        return decide(_obs(stopped, ending), NOW + timedelta(seconds=seconds)).driver.action

    assert after(10) is DriverAction.NOTHING
    assert after(40) is DriverAction.TERMINATE
    assert after(70) is DriverAction.KILL


def test_the_same_error_at_the_same_batch_a_third_time_holds_the_query() -> None:
    error = RunError("DIVIDE_BY_ZERO", "x", "[DIVIDE_BY_ZERO] by zero", "[DIVIDE_BY_ZERO]")
    status = RunStatus(run=1, query=1, state=RunState.FAILED, failed_batch=4, error=error)
    run = RunSeen(1, 1, 1, NOW, False, status=status)
    first = decide(_obs(_query(phase=Phase.RUNNING, run=run), _driver()), NOW)
    fault = _only(first).ended.fault
    earlier = (Earlier(fault.fingerprint, 4), Earlier(fault.fingerprint, 4))
    query = _query(phase=Phase.RUNNING, run=run, failures=2, recent_failures=earlier)
    held = _only(decide(_obs(query, _driver()), NOW))
    assert (held.phase, held.restart_block) == (Phase.ON_HOLD, RestartBlock.ON_HOLD)
    assert held.next_attempt_at == NOW + timedelta(minutes=30)
    probing = _query(
        phase=Phase.RUNNING, restart_block=RestartBlock.ON_HOLD, run=replace(run, status=None)
    )
    committed = replace(probing, run=replace(run, status=None, committed=True, proven_at=NOW))
    assert _only(decide(_obs(committed, _driver()), NOW)).restart_block is RestartBlock.NONE
    uncommitted = _only(decide(_obs(probing, _driver()), NOW))
    assert uncommitted.restart_block is RestartBlock.ON_HOLD


TOKEN = RunError("", "x.S3Exception", "The provided token has expired.", "")
BUCKET = RunError("", "x.S3Exception", "The specified bucket does not exist.", "")


def _failed(error: RunError) -> Decision:
    status = RunStatus(run=1, query=1, state=RunState.FAILED, error=error)
    run = RunSeen(1, 1, 1, NOW, False, status=status)
    return decide(_obs(_query(phase=Phase.RUNNING, run=run), _driver()), NOW)


def test_rejected_credentials_are_read_again_by_a_new_driver() -> None:
    assert _failed(TOKEN).driver.end_wanted is Reason.REPLACED
    assert _failed(BUCKET).driver.end_wanted is Reason.NONE


@pytest.mark.guarantee("G-RESTART-3")
def test_a_neighbour_that_runs_keeps_the_driver_whose_credentials_are_rejected() -> None:
    status = RunStatus(run=1, query=1, state=RunState.FAILED, error=TOKEN)
    failed = _query(phase=Phase.RUNNING, run=RunSeen(1, 1, 1, NOW, False, status=status))
    other = RunStatus(run=2, query=2, state=RunState.RUNNING)
    runs = _query(id=2, phase=Phase.RUNNING, run=RunSeen(2, 1, 1, NOW, False, status=other))
    obs = replace(_obs(failed, _driver()), queries=(failed, runs))
    assert decide(obs, NOW).driver.end_wanted is Reason.NONE


def test_a_driver_that_a_wrong_configuration_ends_is_held_at_the_limit() -> None:
    def ended(
        failures: int, print_: str = "", *, restart_block: RestartBlock = RestartBlock.NONE
    ) -> Decision:
        status = DriverStatus(epoch=1, applied_generation=1, at=NOW.isoformat(), error=BUCKET)
        report = ExitReport("1", "0", core=False, oom=False, at=NOW.isoformat())
        sighting = Sighting(Liveness.EXITED, status=status, exit=report)
        earlier = (Earlier(print_, None),) * failures
        obs = _obs(
            _query(phase=Phase.STARTING, run=RunSeen(1, 1, 1, NOW, False)),
            replace(_driver(), sighting=sighting),
            failures=failures,
            recent_failures=earlier,
            restart_block=restart_block,
        )
        return decide(obs, NOW)

    fault = ended(0).driver.fault
    assert fault is not None
    assert ended(1, fault.fingerprint).restart_block is RestartBlock.NONE
    assert ended(2, "another").restart_block is RestartBlock.NONE
    held = ended(2, fault.fingerprint)
    assert (held.restart_block, held.next_attempt_at) == (
        RestartBlock.ON_HOLD,
        NOW + timedelta(minutes=30),
    )
    choice = _only(held)
    assert (choice.phase, choice.reason) == (Phase.ON_HOLD, Reason.FAILED_REPEATED)
    assert "Create it" in choice.detail.text
    assert (
        _only(ended(3, "another", restart_block=RestartBlock.ON_HOLD)).reason is Reason.PROBE_FAILED
    )


def test_a_driver_s_hold_ends_once_a_query_starts() -> None:
    run = RunSeen(1, 1, 1, NOW, False, status=RunStatus(run=1, query=1, state=RunState.RUNNING))
    starting = _obs(
        _query(phase=Phase.STARTING, run=run),
        _driver(),
        restart_block=RestartBlock.ON_HOLD,
        failures=3,
    )
    assert decide(starting, NOW).restart_block is RestartBlock.ON_HOLD
    idle = _query(phase=Phase.STARTING, run=replace(run, proven_at=NOW))
    proven = decide(replace(starting, queries=(idle,)), NOW)
    assert (proven.restart_block, proven.failures) == (RestartBlock.NONE, 0)


def _ended(state: RunState, want: Want = Want.RUN, **fields: Any) -> RunSeen:
    status = RunStatus(run=1, query=1, state=state, asked_for=want, **fields)
    return RunSeen(1, 1, 1, NOW, False, status=status)


def test_an_end_is_sorted_by_who_asked_for_it_and_by_its_trigger() -> None:
    def end(run: RunSeen) -> Any:
        return _only(decide(_obs(_query(phase=Phase.RUNNING, run=run), _driver()), NOW))

    unasked = end(_ended(RunState.ENDED))
    assert (unasked.ended.outcome, unasked.failures) == (RunOutcome.FAILED, 1)
    asked = end(_ended(RunState.ENDED, Want.DRAIN))
    assert (asked.ended.outcome, asked.failures) == (RunOutcome.STOPPED, 0)
    finished = end(replace(_ended(RunState.ENDED), ends_by_itself=True))
    assert (finished.ended.outcome, finished.phase) == (RunOutcome.COMPLETED, Phase.COMPLETED)
    error = RunError("", "", "held", "held", refused="held")
    refused = end(_ended(RunState.REFUSED, error=error))
    assert (refused.ended.outcome, refused.failures) == (RunOutcome.REFUSED, 1)
    silent = end(_ended(RunState.FAILED))
    assert silent.ended.fault.error.root_cause == "The driver reported no reason."


def test_one_failure_ends_the_driver_where_the_application_says_so() -> None:
    query = _query(phase=Phase.RUNNING, run=_ended(RunState.FAILED, error=ERRORS[1]))
    decision = decide(_obs(query, _driver(), failure_scope="application"), NOW)
    assert decision.driver.end_wanted == Reason.FAILURE_SCOPE
    assert _only(decision).open_run is None


def test_what_the_stopping_of_the_installation_ended_starts_again_as_resumed() -> None:
    query = _query(phase=Phase.PENDING, phase_reason=Reason.SHUTDOWN)
    assert _only(decide(_obs(query), NOW)).open_run is Reason.RESUMED
    died = _query(phase=Phase.BACKOFF, phase_reason=Reason.DRIVER_DIED)
    assert _only(decide(_obs(died), NOW)).open_run is Reason.DRIVER_DIED
    asked = _query(reached_generation=0)
    assert _only(decide(_obs(asked), NOW)).open_run is Reason.ASKED_START
    retried = _query(phase=Phase.BACKOFF, failures=2)
    assert _only(decide(_obs(retried), NOW)).open_run is Reason.RETRY_DUE
    probed = _query(phase=Phase.ON_HOLD, restart_block=RestartBlock.ON_HOLD, next_attempt_at=NOW)
    assert _only(decide(_obs(probed), NOW)).open_run is Reason.PROBE


def test_a_broken_query_without_a_probe_time_waits_for_a_person() -> None:
    decision = decide(_obs(_query(restart_block=RestartBlock.ON_HOLD, phase=Phase.ON_HOLD)), NOW)
    assert _only(decision).phase is Phase.ON_HOLD
    assert decision.wake_at is None
