"""The steps of a decision that are about runs: which ended and why, which open, which go on."""

from datetime import timedelta

from queries.domain.protocol import RunState, Want
from queries.domain.states import Desired, Hold, Phase, Policy, Reason, RunOutcome, StopMode
from queries.domain.supervision import restart
from queries.domain.supervision.decision import DriverAction, Fault, RunEnd
from queries.domain.supervision.draft import Plan, Work
from queries.domain.supervision.endings import run_end
from queries.domain.supervision.observation import RunSeen


def settle_runs(plan: Plan) -> None:
    """Settle the runs that ended: outcome, failure, ladder."""
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
    poison = classified.policy is Policy.POISON
    poisoned = poison and restart.poisoned(
        policy,
        fingerprint=fault.fingerprint,
        batch=fault.batch,
        recent=work.seen.recent_failures[: work.failures - 1],
    )
    if poisoned:
        work.detail = (
            f"The same error on batch {fault.batch} has reached the poison limit of "
            f"{policy.poison_limit}. {work.detail}"
        )
    if poisoned or (poison and work.hold is Hold.BROKEN):
        work.hold = Hold.BROKEN
        work.next_attempt_at = plan.now + timedelta(seconds=policy.probe_every_s)
        return
    work.hold = Hold.NONE
    wait = restart.delay(policy, work.failures, key=f"query:{work.seen.id}")
    work.next_attempt_at = plan.now + wait if wait else None


def forget_failures(plan: Plan) -> None:
    """Forget the failures of runs that have been healthy, or have committed, long enough."""
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


def open_runs(plan: Plan) -> None:
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
        stalled = seen.phase_reason == Reason.STALLED
        return Reason.STALLED if stalled else Reason.ASKED_RESTART
    if seen.phase_reason == Reason.ASKED_RESTART:
        return Reason.ASKED_RESTART
    if work.failures:
        return Reason.RETRY_DUE
    if seen.reached_generation < seen.generation:
        return Reason.ASKED_START
    if seen.phase_reason == Reason.SHUTDOWN:
        return Reason.RESUMED
    return Reason.DRIVER_DIED


def want_runs(plan: Plan) -> None:
    """Say of each open run whether it goes on, ends after its batch, or ends at once."""
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
