"""decide(observation, now): the whole of supervision as one pure function.

It reads as a pipeline of named steps over one working copy: read the driver, settle the runs
that ended, forget old failures, want (or not) a driver, open runs, say what each run is to
do, name the phases, and say when to look again. Nothing here acts; `services/reconcile.py`
carries the decision out and `supervision.md`'s invariants are its properties.
"""

from datetime import datetime, timedelta
from typing import assert_never

from queries.domain import restart
from queries.domain.decision import (
    Decision,
    DriverAction,
    DriverDecision,
    Fault,
    QueryDecision,
    RunEnd,
)
from queries.domain.observation import Liveness, Observation, RunSeen
from queries.domain.phases import name_phase, reached
from queries.domain.plan import Plan, Work
from queries.domain.protocol import RunState, Want
from queries.domain.settle import FENCED, driver_fault, exit_of, run_end
from queries.domain.states import (
    Desired,
    DriverState,
    Hold,
    Phase,
    Policy,
    Reason,
    RunOutcome,
    StopMode,
)

#: How soon to look again while something is under way; nudges make it sooner.
WATCHFUL = timedelta(seconds=1)
#: How soon to look again while everything runs: the certainty behind lost nudges.
CALM = timedelta(seconds=5)


def decide(obs: Observation, now: datetime) -> Decision:
    """Return what is to be done about the application `obs` shows.

    1. Clear the counters of queries whose generation is new.
    2. Read the driver: did it end, hang in its start, leave an orphan?
    3. Settle the runs that ended: outcome, failure, ladder.
    4. Forget failures of runs that have been healthy long enough.
    5. Say whether the driver is wanted; launch one where it is and none is there.
    6. Open a run for each query that is due, and say what open runs are to do.
    7. Name the phases and the generations reached; say when to look again.
    """
    plan = _begin(obs, now)
    _read_driver(plan)
    _settle_runs(plan)
    _forget_failures(plan)
    _want_driver(plan)
    _open_runs(plan)
    _want_runs(plan)
    _end_slow_driver(plan)
    return _conclude(plan)


def _begin(obs: Observation, now: datetime) -> Plan:
    plan = Plan(
        obs,
        now,
        [],
        obs.failures,
        obs.next_attempt_at,
        obs.hold,
        obs.hold_reason,
        end_wanted=obs.driver.end_wanted if obs.driver else "",
        state=obs.driver.state if obs.driver else None,
    )
    fresh = obs.generation > obs.seen_generation
    for seen in obs.queries:
        work = Work(
            seen, seen.run, seen.failures, seen.next_attempt_at, seen.hold, seen.phase_detail
        )
        if seen.generation > seen.seen_generation:
            work.failures, work.next_attempt_at, work.hold, work.detail = 0, None, Hold.NONE, ""
            fresh = fresh or seen.desired is Desired.RUNNING
        plan.queries.append(work)
    if fresh:
        plan.failures, plan.next_attempt_at, plan.hold, plan.hold_reason = 0, None, Hold.NONE, ""
    return plan


def _read_driver(plan: Plan) -> None:
    driver = plan.obs.driver
    if driver is None:
        return
    late = plan.now - driver.created_at > timedelta(seconds=plan.obs.limits.start_s)
    match driver.sighting.liveness:
        case Liveness.EXITED | Liveness.GONE:
            _end_driver(plan)
        case Liveness.ABSENT if late:
            _end_driver(plan)
        case Liveness.ABSENT:
            plan.action = DriverAction.SPAWN
        case Liveness.ORPHANED:
            plan.action = DriverAction.KILL
        case Liveness.ELSEWHERE:
            plan.lost = True
        case Liveness.SPAWNING | Liveness.ALIVE:
            if plan.driver_ready:
                ending = bool(plan.end_wanted)
                plan.state = DriverState.STOPPING if ending else DriverState.LIVE
            elif late:
                plan.end_wanted = plan.end_wanted or Reason.START_TIMED_OUT
                plan.action = DriverAction.KILL
        case never:
            assert_never(never)


def _end_driver(plan: Plan) -> None:
    driver = plan.obs.driver
    assert driver is not None
    plan.exit = exit_of(driver, at=plan.now.isoformat())
    fenced = plan.exit.python == FENCED
    plan.state = DriverState.FENCED if fenced else DriverState.ENDED
    plan.fault = None if fenced else driver_fault(driver, plan.exit)
    if plan.fault is None:
        return
    plan.failures += 1
    if plan.fault.classified.policy is Policy.FATAL:
        plan.hold = Hold.FAILED
        plan.hold_reason = plan.fault.classified.title
        plan.next_attempt_at = None
        return
    wait = restart.delay(plan.obs.policy, plan.failures, key=f"application:{plan.obs.application}")
    plan.next_attempt_at = plan.now + wait if wait else None
    plan.hold_reason = plan.fault.classified.title


def _settle_runs(plan: Plan) -> None:
    for work in plan.queries:
        if work.run is None:
            continue
        ended = run_end(
            work.seen,
            work.run,
            driver_ended=plan.exit is not None,
            driver_asked=plan.exit is not None and plan.fault is None,
        )
        if ended is None:
            continue
        current = work.run.generation == work.seen.generation
        work.ended, work.run = ended, None
        work.completed = ended.outcome is RunOutcome.COMPLETED and current
        if ended.fault is None:
            work.detail = ""
        elif work.seen.desired is Desired.RUNNING and current:
            _climb(plan, work, ended.fault)
        if ended.outcome is RunOutcome.REFUSED:
            _replace_stuck_driver(plan, ended)
        if ended.outcome is RunOutcome.FAILED and plan.obs.failure_scope == "application":
            plan.end_wanted = plan.end_wanted or Reason.FAILURE_SCOPE


def _replace_stuck_driver(plan: Plan, ended: RunEnd) -> None:
    """End a driver that refuses a query for a start of the same query that hangs in it.

    Only a fresh process lets go of the lock then; where neighbours run they come first.
    """
    driver = plan.obs.driver
    status = driver.sighting.status if driver else None
    error = ended.fault.error if ended.fault else None
    ours = status and error and error.holder_pid and error.holder_pid == status.jvm_pid
    if ours and not any(work.run for work in plan.queries):
        plan.end_wanted = plan.end_wanted or Reason.REPLACED


def _climb(plan: Plan, work: Work, fault: Fault) -> None:
    """Move a query one rung up its ladder, or off it."""
    policy, classified = plan.obs.policy, fault.classified
    work.failures += 1
    work.detail = f"{classified.title.rstrip('.')}. {classified.way_out}".strip()
    work.refused = bool(fault.error and fault.error.refused)
    if classified.policy is Policy.FATAL:
        work.hold, work.next_attempt_at = Hold.FAILED, None
        return
    straw = classified.policy is Policy.POISON and (
        work.hold is Hold.BROKEN
        or restart.poisoned(
            policy,
            fingerprint=fault.fingerprint,
            batch=fault.batch,
            recent=work.seen.recent_failures[: work.failures - 1],
        )
    )
    if straw:
        work.hold = Hold.BROKEN
        work.next_attempt_at = plan.now + timedelta(seconds=policy.probe_every_s)
        return
    work.hold = Hold.NONE
    wait = restart.delay(policy, work.failures, key=f"query:{work.seen.id}")
    work.next_attempt_at = plan.now + wait if wait else None


def _forget_failures(plan: Plan) -> None:
    for work in plan.queries:
        if work.run is None:
            continue
        if work.run.committed and work.hold is Hold.BROKEN:
            work.hold, work.failures, work.detail = Hold.NONE, 0, ""
        if work.hold is not Hold.BROKEN:  # a probe that ends unproven is due again
            work.next_attempt_at = None
        proven = work.run.proven_at if work.run.committed else None
        if restart.healthy(plan.obs.policy, proven_at=proven, now=plan.now):
            work.failures, work.detail = 0, ""
            plan.failures, plan.next_attempt_at, plan.hold_reason = 0, None, ""


def _want_driver(plan: Plan) -> None:
    obs, driver = plan.obs, plan.obs.driver
    if plan.lost:
        return
    if driver is not None and plan.exit is None:
        plan.end_wanted = plan.end_wanted or _end_reason(plan, driver.generation)
        return
    if plan.exit is not None or not any(plan.due(work) for work in plan.queries):
        return
    if plan.next_attempt_at is not None and plan.next_attempt_at > plan.now:
        return
    plan.waits = obs.slots.free
    if plan.waits is Reason.NONE:
        plan.action = DriverAction.LAUNCH
        plan.next_attempt_at = None


def _end_reason(plan: Plan, generation: int) -> str:
    if plan.obs.paused:
        return Reason.SHUTDOWN
    if plan.obs.generation > generation:
        return Reason.REPLACED
    if not any(_needs_driver(plan, work) for work in plan.queries):
        return Reason.NOT_WANTED
    return ""


def _needs_driver(plan: Plan, work: Work) -> bool:
    """Return whether a living driver is kept for this query: it runs, is due, or soon will be."""
    if work.seen.desired is not Desired.RUNNING or work.completed:
        return False
    waits_soon = work.hold is Hold.NONE and plan.hold is not Hold.FAILED
    return work.run is not None or plan.due(work) or waits_soon


def _open_runs(plan: Plan) -> None:
    if plan.exit is not None or plan.lost or plan.end_wanted or not plan.driver_open:
        return
    if plan.action is DriverAction.KILL:
        return
    for work in plan.queries:
        if plan.due(work):
            work.open_run = _cause(work)


def _cause(work: Work) -> Reason:
    """Return why a run is opened, read off what the query was doing until now."""
    seen = work.seen
    if work.hold is Hold.BROKEN:
        return Reason.PROBE
    if seen.phase is Phase.STOPPING:
        stalled = seen.phase_reason == Reason.STALLED
        return Reason.STALLED if stalled else Reason.ASKED_RESTART
    if work.failures:
        return Reason.RETRY_DUE
    if seen.reached_generation < seen.generation:
        return Reason.ASKED_START
    if seen.phase_reason == Reason.SHUTDOWN:
        return Reason.RESUMED
    return Reason.DRIVER_DIED


def _want_runs(plan: Plan) -> None:
    stop = timedelta(seconds=plan.obs.limits.stop_s)
    leave = timedelta(seconds=plan.obs.limits.leave_s)
    for work in plan.queries:
        run, seen = work.run, work.seen
        if run is None:
            continue
        asked = seen.desired is Desired.STOPPED or run.generation < seen.generation
        hung = _hung_in_start(plan, run)
        ending = seen.phase is Phase.STOPPING and seen.phase_reason == Reason.STALLED
        work.stalled = plan.obs.policy.restart_on_stall and (seen.stalled or ending) and not asked
        if not (asked or plan.end_wanted or hung or work.stalled):
            continue
        at_once = (
            hung
            or work.stalled
            or (seen.desired is Desired.STOPPED and seen.stop_mode is StopMode.NOW)
        )
        since = run.stop_asked_at or plan.now
        asked_until = seen.stop_deadline if asked else None
        work.deadline = asked_until or since + stop
        work.want = Want.STOP if at_once or work.deadline <= plan.now else Want.DRAIN
        work.stuck = run.stop_asked_at is not None and plan.now > work.deadline + leave
        if hung:
            work.detail = "Spark did not start the query in time."


def _hung_in_start(plan: Plan, run: RunSeen) -> bool:
    status = plan.obs.driver.sighting.status if plan.obs.driver else None
    if not plan.driver_ready or status is None or run.proven_at is not None:
        return False
    if run.status is not None and (run.status.started_at or run.status.state is RunState.RUNNING):
        return False
    return plan.now - run.created_at > timedelta(seconds=plan.obs.limits.start_s)


def _end_slow_driver(plan: Plan) -> None:
    """Press a driver that is to end harder the longer it takes."""
    driver = plan.obs.driver
    if driver is None or plan.exit is not None or plan.lost or not plan.end_wanted:
        return
    plan.state = DriverState.STOPPING
    since = driver.end_wanted_at or plan.now
    last = max((w.deadline for w in plan.queries if w.run and w.deadline), default=since)
    leave = timedelta(seconds=plan.obs.limits.leave_s)
    if plan.action is DriverAction.KILL or plan.now > last + 2 * leave:
        plan.action = DriverAction.KILL
    elif plan.now > last + leave:
        plan.action = DriverAction.TERMINATE


def _conclude(plan: Plan) -> Decision:
    queries = tuple(_query_decision(plan, work) for work in plan.queries)
    ended = plan.exit is not None or any(work.ended for work in plan.queries)
    if ended:  # what follows is decided at once; should this worker die first, by the sweep
        plan.wakes.append(plan.now)
    for work in plan.queries:
        if work.run is None and work.open_run is None and work.next_attempt_at is not None:
            plan.wakes.append(work.next_attempt_at)
    if plan.next_attempt_at is not None:
        plan.wakes.append(plan.next_attempt_at)
    if plan.waits is not Reason.NONE:
        plan.wakes.append(plan.now + WATCHFUL)
    if plan.driver_open or plan.lost:
        acts = plan.action is not DriverAction.NOTHING
        live = plan.state is DriverState.LIVE and not acts
        calm = live and all(_calm(work) for work in plan.queries)
        plan.wakes.append(plan.now + (CALM if calm else WATCHFUL))
    settled = plan.obs.generation if _application_reached(plan) else plan.obs.reached_generation
    return Decision(
        driver=DriverDecision(plan.action, plan.state, plan.end_wanted, plan.exit, plan.fault),
        queries=queries,
        failures=plan.failures,
        next_attempt_at=plan.next_attempt_at,
        hold=plan.hold,
        hold_reason=plan.hold_reason,
        seen_generation=plan.obs.generation,
        reached_generation=settled,
        wake_at=max(plan.now, min(plan.wakes)) if plan.wakes else None,
        again=ended,
    )


def _calm(work: Work) -> bool:
    proven = work.run is not None and work.run.proven_at is not None and work.want is Want.RUN
    return proven or (work.run is None and work.open_run is None and work.ended is None)


def _application_reached(plan: Plan) -> bool:
    driver = plan.obs.driver
    if driver is not None and plan.exit is None and driver.generation < plan.obs.generation:
        return False
    wanted = [w for w in plan.queries if w.seen.desired is Desired.RUNNING and w.hold is Hold.NONE]
    return all(work.run is not None and _calm(work) for work in wanted)


def _query_decision(plan: Plan, work: Work) -> QueryDecision:
    phase, reason, detail = name_phase(plan, work)
    seen = work.seen
    done = reached(plan, work, phase)
    return QueryDecision(
        query=seen.id,
        phase=phase,
        reason=reason,
        detail=detail,
        failures=work.failures,
        next_attempt_at=work.next_attempt_at,
        hold=work.hold,
        seen_generation=seen.generation,
        reached_generation=seen.generation if done else seen.reached_generation,
        ended=work.ended,
        completed=work.completed,
        open_run=work.open_run,
        want=work.want,
        deadline=work.deadline,
    )
