"""The second half of a decision: what is wanted of the driver and of each run from now on."""

from datetime import timedelta

from queries.domain.protocol import RunState, Want
from queries.domain.states import Desired, DriverState, Hold, Phase, Reason, StopMode
from queries.domain.supervision.decision import DriverAction
from queries.domain.supervision.draft import Plan, Work
from queries.domain.supervision.observation import RunSeen


def decide_wants(plan: Plan) -> None:
    """Say what is wanted from now on.

    1. Say whether the driver is wanted; launch one where it is and none is there.
    2. Open a run for each query that is due.
    3. Say of each open run whether it goes on, ends after its batch, or ends at once.
    4. Press a driver that is to end harder the longer it takes.
    """
    _want_driver(plan)
    _open_runs(plan)
    _want_runs(plan)
    _end_slow_driver(plan)


def _want_driver(plan: Plan) -> None:
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


def _open_runs(plan: Plan) -> None:
    """Open a run for each query that is due and has a driver to take it."""
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
        stalled = seen.phase_reason is Reason.STALLED
        return Reason.STALLED if stalled else Reason.ASKED_RESTART
    if seen.phase_reason is Reason.ASKED_RESTART:
        return Reason.ASKED_RESTART
    if work.failures:
        return Reason.RETRY_DUE
    if seen.reached_generation < seen.generation:
        return Reason.ASKED_START
    if seen.phase_reason is Reason.SHUTDOWN:
        return Reason.RESUMED
    return Reason.DRIVER_DIED


def _want_runs(plan: Plan) -> None:
    """Say of each open run whether it goes on, ends after its batch, or ends at once."""
    stop = timedelta(seconds=plan.obs.limits.stop_s)
    leave = timedelta(seconds=plan.obs.limits.leave_s)
    for work in plan.queries:
        run, seen = work.run, work.seen
        if run is None:
            continue
        asked = seen.desired is Desired.STOPPED or run.generation < seen.generation
        hung = _hung_in_start(plan, run)
        ending = seen.phase is Phase.STOPPING and seen.phase_reason is Reason.STALLED
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
