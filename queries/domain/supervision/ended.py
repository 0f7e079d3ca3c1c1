"""The first half of a decision: what has ended, and what follows for restarts."""

from typing import assert_never

from queries.domain import restart
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import DriverState, Hold, Reason
from queries.domain.supervision import culprits, script
from queries.domain.supervision.decision import DriverAction
from queries.domain.supervision.draft import Draft
from queries.domain.supervision.observation import DriverSeen, Liveness
from queries.domain.supervision.outcomes import (
    climb,
    driver_fault,
    exit_of,
    exit_reason,
    run_end,
    was_fenced,
)
from queries.domain.supervision.progress import advanced, has_taken_longest, is_stuck


def settle_ends(draft: Draft) -> None:
    """Settle what has ended.

    1. Read the driver's state: did it end, hang during its start, or leave an orphan?
    2. Settle the runs that ended: outcome, failure, backoff.
    3. Hold the query that killed the driver, if that is proven.
    4. Forget the failures of runs that have been healthy long enough.
    """
    draft.is_sequential = draft.subject.is_sequential(draft)
    _read_driver(draft)
    _settle_runs(draft)
    draft.subject.blame(draft)
    _forget_failures(draft)


def _read_driver(draft: Draft) -> None:
    """Determine whether the driver ended, hangs during its start, or left an orphan."""
    driver = draft.obs.driver
    if driver is None:
        return
    draft.progress = advanced(driver, draft.now)
    late = is_stuck(
        began_at=driver.began_at,
        advanced_at=draft.progress.at,
        limits=draft.obs.limits,
        now=draft.now,
    )
    match driver.sighting.liveness:
        case Liveness.EXITED | Liveness.GONE:
            _end_driver(draft)
        case Liveness.ABSENT if late:  # it ends once its exit is recorded, so nothing spawns it
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
    if driver.end_wanted is Reason.HOST_GONE:  # its host is back: it writes no more batches
        draft.action = DriverAction.KILL
        return
    if draft.driver_ready:
        ending = bool(draft.end_wanted)
        draft.state = DriverState.STOPPING if ending else DriverState.LIVE
        return
    if driver.sighting.without_files and driver.state is not DriverState.STARTING:
        return  # it was up before its folder was removed: nothing shows that it is down now
    if late:
        draft.end_wanted = draft.end_wanted or Reason.START_TIMED_OUT
        draft.action = DriverAction.KILL


def _end_driver(draft: Draft) -> None:
    driver = draft.obs.driver
    assert driver is not None
    draft.exit = exit_of(driver, at=draft.now.isoformat())
    fenced = was_fenced(draft.exit)
    draft.state = DriverState.FENCED if fenced else DriverState.ENDED
    draft.completed = script.has_completed(draft)
    draft.fault = (
        None
        if fenced or draft.completed
        else driver_fault(driver, draft.exit, _late(draft, driver))
    )
    draft.exit_reason = exit_reason(driver, draft.exit, draft.fault)
    if draft.fault is None:
        return
    draft.failures += 1
    runs = [work.run for work in draft.queries if work.run is not None]
    in_a_row = culprits.is_in_a_row((run.committed, run.candidacy) for run in runs)
    draft.deaths = draft.deaths + 1 if in_a_row else 0
    rung = climb(
        draft.obs.policy,
        draft.fault,
        failures=draft.failures,
        recent=draft.obs.recent_failures,
        committed=any(run.committed for run in runs),
        hold=draft.hold,
        key=f"application:{draft.obs.application}",
        now=draft.now,
    )
    draft.hold, draft.next_attempt_at = rung.hold, rung.next_attempt_at
    draft.hold_reason, draft.hold_cause = rung.detail, rung.hold_cause
    if draft.obs.script is None and draft.hold is Hold.NONE:
        title = draft.fault.classified.title
        draft.hold_reason = Because(Detail.DRIVER_FAILURE, {"title": title})


def _late(draft: Draft, driver: DriverSeen) -> str:
    """Return in one sentence or two why a start was given up, if it was."""
    limits = draft.obs.limits
    late = f"Its start did not advance for {limits.start_s:g} s."
    if has_taken_longest(driver.began_at, limits, draft.now):
        late = f"Its start took longer than {limits.start_max_s:g} s."
    return f"{late} This host was busy: {draft.busy}." if draft.busy else late


def _settle_runs(draft: Draft) -> None:
    """Settle the runs that ended: outcome, failure, backoff."""
    for work in draft.queries:
        if work.run is None:
            continue
        ended = run_end(
            work.observed,
            work.run,
            driver_ended=draft.exit is not None,
            driver_end_requested=_ended_as_requested(draft),
            by_itself=draft.subject.stopped_by_itself(),
        )
        if ended is not None:
            draft.subject.run_ended(draft, work, ended)


def _ended_as_requested(draft: Draft) -> bool:
    """Return whether the driver ended as requested; on a lost host, it did not get the request."""
    ended = draft.exit is not None and draft.fault is None
    return ended and draft.end_wanted is not Reason.HOST_GONE


def _forget_failures(draft: Draft) -> None:
    """Forget the failures of runs that have been healthy, or have committed, for long enough."""
    for work in draft.queries:
        if work.run is None:
            continue
        starts = draft.obs.script is None and work.run.proven_at is not None
        if (work.run.committed or starts) and draft.hold is Hold.BROKEN:
            draft.hold, draft.failures, draft.hold_reason = Hold.NONE, 0, NOTHING
        if work.run.committed and work.hold is Hold.BROKEN:
            work.hold, work.failures, work.detail = Hold.NONE, 0, NOTHING
        if work.hold is not Hold.BROKEN:  # a retry probe that ends unproven is due again
            work.next_attempt_at = None
        proven = work.run.proven_at if work.run.committed else None
        if restart.healthy(draft.obs.policy, proven_at=proven, now=draft.now):
            work.failures, work.detail = 0, NOTHING
            draft.failures, draft.next_attempt_at, draft.hold_reason = 0, None, NOTHING
