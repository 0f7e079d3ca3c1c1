"""The first half of a decision: what has ended, and what follows for restarts."""

from datetime import timedelta
from typing import assert_never

from queries.domain import restart
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import Desired, DriverState, Hold, Policy, Reason, RunOutcome
from queries.domain.supervision import script
from queries.domain.supervision.culprits import convict, one_by_one
from queries.domain.supervision.decision import DriverAction, Fault, RunEnd
from queries.domain.supervision.draft import Draft, QueryDraft
from queries.domain.supervision.observation import DriverSeen, Liveness
from queries.domain.supervision.outcomes import FENCED, climb, driver_fault, exit_of, run_end


def settle_ends(draft: Draft) -> None:
    """Settle what has ended.

    1. Read the driver: did it end, hang in its start, leave an orphan?
    2. Settle the runs that ended: outcome, failure, ladder.
    3. Hold the query that ended the driver, where that is proven.
    4. Forget the failures of runs that have been healthy long enough.
    """
    draft.one_by_one = draft.obs.script is None and one_by_one(draft)
    _read_driver(draft)
    _settle_runs(draft)
    if draft.obs.script is None:
        convict(draft)
    _forget_failures(draft)


def _read_driver(draft: Draft) -> None:
    """Read from the sighting whether the driver ended, hangs in its start, or left an orphan."""
    driver = draft.obs.driver
    if driver is None:
        return
    late = draft.now - driver.created_at > timedelta(seconds=draft.obs.limits.start_s)
    match driver.sighting.liveness:
        case Liveness.EXITED | Liveness.GONE:
            _end_driver(draft)
        case Liveness.ABSENT if late:  # it ends once its exit stands, so that no sleeper spawns it
            draft.action = DriverAction.SEAL
        case Liveness.ABSENT:
            draft.action = DriverAction.SPAWN
        case Liveness.ORPHANED:
            draft.action = DriverAction.KILL
        case Liveness.ELSEWHERE:
            draft.lost = True
        case Liveness.SPAWNING | Liveness.ALIVE:
            _look_at_living(draft, driver, late=late)
        case never:
            assert_never(never)


def _look_at_living(draft: Draft, driver: DriverSeen, *, late: bool) -> None:
    if draft.driver_ready:
        ending = bool(draft.end_wanted)
        draft.state = DriverState.STOPPING if ending else DriverState.LIVE
        return
    if driver.sighting.without_files and driver.state is not DriverState.STARTING:
        return  # it was up before its folder went: nothing says that it is not any more
    if late:
        draft.end_wanted = draft.end_wanted or Reason.START_TIMED_OUT
        draft.action = DriverAction.KILL


def _end_driver(draft: Draft) -> None:
    driver = draft.obs.driver
    assert driver is not None
    draft.exit = exit_of(driver, at=draft.now.isoformat())
    fenced = draft.exit.python == FENCED
    draft.state = DriverState.FENCED if fenced else DriverState.ENDED
    draft.completed = script.has_completed(draft)
    draft.fault = None if fenced or draft.completed else driver_fault(driver, draft.exit)
    if draft.fault is None:
        return
    draft.failures += 1
    if draft.obs.script is not None:
        script.climb(draft, draft.fault)
        return
    draft.hold_reason = Because(Detail.DRIVER_FAILURE, {"title": draft.fault.classified.title})
    if draft.fault.classified.policy is Policy.FATAL:
        draft.hold = Hold.FAILED
        draft.next_attempt_at = None
        return
    key = f"application:{draft.obs.application}"
    wait = restart.delay(draft.obs.policy, draft.failures, key=key)
    draft.next_attempt_at = draft.now + wait if wait else None


def _settle_runs(draft: Draft) -> None:
    """Settle the runs that ended: outcome, failure, ladder."""
    for work in draft.queries:
        if work.run is None:
            continue
        ended = run_end(
            work.seen,
            work.run,
            driver_ended=draft.exit is not None,
            driver_asked=draft.exit is not None and draft.fault is None,
            by_script=draft.obs.script is not None,
        )
        if ended is None:
            continue
        if draft.obs.script is not None:
            script.settle(draft, work, ended)
            continue
        current = work.run.generation == work.seen.generation
        work.ended, work.run = ended, None
        work.completed = ended.outcome is RunOutcome.COMPLETED and current
        if ended.fault is None:
            work.detail = NOTHING
        elif work.seen.desired is Desired.RUNNING and current:
            _climb(draft, work, ended.fault)
        if ended.outcome is RunOutcome.REFUSED:
            _replace_stuck_driver(draft, ended)
        if ended.outcome is RunOutcome.FAILED and draft.obs.failure_scope == "application":
            draft.end_wanted = draft.end_wanted or Reason.FAILURE_SCOPE


def _replace_stuck_driver(draft: Draft, ended: RunEnd) -> None:
    """End a driver in which a hanging start of a query holds the lock that its next run needs.

    Only a new process releases the lock then; while other queries run in it, they come first.
    """
    driver = draft.obs.driver
    status = driver.sighting.status if driver else None
    error = ended.fault.error if ended.fault else None
    ours = status and error and error.holder_pid and error.holder_pid == status.jvm_pid
    if ours and not any(work.run for work in draft.queries):
        draft.end_wanted = draft.end_wanted or Reason.REPLACED


def _climb(draft: Draft, work: QueryDraft, fault: Fault) -> None:
    """Count a query's failure, and schedule its next attempt or hold it."""
    work.failures += 1
    work.refused = bool(fault.error and fault.error.refused)
    rung = climb(
        draft.obs.policy,
        fault,
        failures=work.failures,
        recent=work.seen.recent_failures,
        hold=work.hold,
        key=f"query:{work.seen.id}",
        now=draft.now,
    )
    work.hold, work.next_attempt_at, work.detail = rung.hold, rung.next_attempt_at, rung.detail


def _forget_failures(draft: Draft) -> None:
    """Forget the failures of runs that have been healthy, or have committed, long enough."""
    for work in draft.queries:
        if work.run is None:
            continue
        if work.run.committed and draft.hold is Hold.BROKEN:  # of a script
            draft.hold, draft.failures, draft.hold_reason = Hold.NONE, 0, NOTHING
        if work.run.committed and work.hold is Hold.BROKEN:
            work.hold, work.failures, work.detail = Hold.NONE, 0, NOTHING
        if work.hold is not Hold.BROKEN:  # a retry probe that ends unproven is due again
            work.next_attempt_at = None
        proven = work.run.proven_at if work.run.committed else None
        if restart.healthy(draft.obs.policy, proven_at=proven, now=draft.now):
            work.failures, work.detail = 0, NOTHING
            draft.failures, draft.next_attempt_at, draft.hold_reason = 0, None, NOTHING
