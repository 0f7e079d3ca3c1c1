"""The steps of a decision that are about the driver: did it end, is it wanted, does it hang?"""

from datetime import timedelta
from typing import assert_never

from queries.domain.reasons import Because, Detail
from queries.domain.states import Desired, DriverState, Hold, Policy, Reason
from queries.domain.supervision import restart
from queries.domain.supervision.decision import DriverAction
from queries.domain.supervision.draft import Plan, Work
from queries.domain.supervision.endings import FENCED, driver_fault, exit_of
from queries.domain.supervision.observation import Liveness


def read_driver(plan: Plan) -> None:
    """Read off the sighting whether the driver ended, hangs in its start, or left an orphan."""
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
    plan.hold_reason = Because(Detail.DRIVER_FAILURE, {"title": plan.fault.classified.title})
    if plan.fault.classified.policy is Policy.FATAL:
        plan.hold = Hold.FAILED
        plan.next_attempt_at = None
        return
    wait = restart.delay(plan.obs.policy, plan.failures, key=f"application:{plan.obs.application}")
    plan.next_attempt_at = plan.now + wait if wait else None


def want_driver(plan: Plan) -> None:
    """Say whether the living driver is still wanted, or whether one is to be launched."""
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


def _end_reason(plan: Plan, generation: int) -> Reason:
    if plan.obs.paused:
        return Reason.SHUTDOWN
    if plan.obs.generation > generation:
        return Reason.REPLACED
    if not any(_needs_driver(plan, work) for work in plan.queries):
        return Reason.NOT_WANTED
    return Reason.NONE


def _needs_driver(plan: Plan, work: Work) -> bool:
    """Return whether a living driver is kept for this query: it runs, is due, or soon will be."""
    if work.seen.desired is not Desired.RUNNING or work.completed:
        return False
    waits_soon = work.hold is Hold.NONE and plan.hold is not Hold.FAILED
    return work.run is not None or plan.due(work) or waits_soon


def end_slow_driver(plan: Plan) -> None:
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
