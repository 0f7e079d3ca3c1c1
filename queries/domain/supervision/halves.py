"""The two halves of a decision: settle what has ended, then decide what driver and runs do next."""

from datetime import datetime, timedelta
from typing import assert_never

from headgate_ground.tolerant import time_of
from queries.domain import restart
from queries.domain.protocol import RunState, Want
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import Desired, DriverState, Phase, Reason, RestartBlock, StopMode
from queries.domain.supervision import outcomes, script
from queries.domain.supervision.decision import Draft, DriverAction, QueryDraft
from queries.domain.supervision.observation import DriverSeen, Liveness, RunSeen
from queries.domain.supervision.outcomes import (
    climb,
    driver_fault,
    exit_of,
    exit_reason,
    run_end,
    was_fenced,
)
from queries.domain.supervision.progress import (
    advanced,
    has_taken_longest,
    is_stuck,
    note_hanging,
    nothing_else_runs,
    stop_deadline,
)


def settle_ends(draft: Draft) -> None:
    """Settle what has ended.

    1. Read the driver's state: did it end, hang during its start, or leave an orphan?
    2. Settle the runs that ended: outcome, failure, backoff.
    3. Put on hold the query that killed the driver, if that is proven.
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
    late = driver.sighting.pending is None and is_stuck(
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
    in_a_row = outcomes.is_in_a_row((run.committed, run.candidacy) for run in runs)
    draft.deaths = draft.deaths + 1 if in_a_row else 0
    rung = climb(
        draft.obs.policy,
        draft.fault,
        failures=draft.failures,
        recent=draft.obs.recent_failures,
        committed=any(run.committed for run in runs),
        restart_block=draft.restart_block,
        key=f"application:{draft.obs.application}",
        now=draft.now,
    )
    draft.restart_block, draft.next_attempt_at = rung.restart_block, rung.next_attempt_at
    draft.restart_block_reason, draft.restart_block_cause = rung.detail, rung.restart_block_cause
    if draft.obs.script is None and draft.restart_block is RestartBlock.NONE:
        title = draft.fault.classified.title
        draft.restart_block_reason = Because(Detail.DRIVER_FAILURE, {"title": title})


def _late(draft: Draft, driver: DriverSeen) -> str:
    """Return one or two sentences on why a start was abandoned, if it was."""
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
        if (work.run.committed or starts) and draft.restart_block is RestartBlock.ON_HOLD:
            draft.restart_block, draft.failures, draft.restart_block_reason = (
                RestartBlock.NONE,
                0,
                NOTHING,
            )
        if work.run.committed and work.restart_block is RestartBlock.ON_HOLD:
            work.restart_block, work.failures, work.detail = RestartBlock.NONE, 0, NOTHING
        if (
            work.restart_block is not RestartBlock.ON_HOLD
        ):  # a retry probe that ends unproven is due again
            work.next_attempt_at = None
        proven = work.run.proven_at if work.run.committed else None
        if restart.healthy(draft.obs.policy, proven_at=proven, now=draft.now):
            work.failures, work.detail = 0, NOTHING
            draft.failures, draft.next_attempt_at, draft.restart_block_reason = 0, None, NOTHING


def decide_wants(draft: Draft) -> None:
    """Decide what the driver and each run should do now.

    1. Decide whether a driver is needed; launch one if it is missing, end one that only contains
       hanging parts.
    2. Open a run for each query that is due.
    3. Decide for each open run whether it continues, ends after its batch, or ends immediately.
    4. Terminate, then kill, a driver that takes too long to end; seal one that never began.
    """
    _want_driver(draft)
    note_hanging(draft)
    if _can_open(draft):
        draft.subject.open_runs(draft)
    _want_runs(draft)
    _end_slow_driver(draft)


def _want_driver(draft: Draft) -> None:
    """Decide whether the open driver is still needed, or whether to launch one."""
    obs, driver = draft.obs, draft.obs.driver
    if draft.lost:
        return
    if driver is not None and draft.exit is None:
        draft.end_wanted = draft.end_wanted or _why_end(draft, driver.generation)
        return
    due = draft.subject.needs_driver(draft)
    if draft.exit is not None or not due:
        return
    if draft.next_attempt_at is not None and draft.next_attempt_at > draft.now:
        return
    if not obs.code_ready:
        draft.waits, draft.action = Reason.WAITS_CODE, DriverAction.PREPARE
        return
    needed = any(map(_needs_classes, draft.queries))
    if obs.no_classes and (needed or not (obs.classes_failed or obs.standby)):
        draft.waits, draft.action = Reason.WAITS_CLASSES, DriverAction.COMPILE
        return
    if obs.standby:  # it has started, or is starting, and has its memory: it needs no slot
        draft.action = DriverAction.TAKE_OVER
        draft.next_attempt_at = None
        return
    draft.waits = obs.slots.free
    if draft.waits is Reason.NONE:
        draft.action = DriverAction.LAUNCH
        draft.next_attempt_at = None


def _needs_classes(work: QueryDraft) -> bool:
    """Return whether a driver without our Java classes could not run the query now or soon.

    They keep a second driver out of a checkpoint that has no lock (`queries/jvm`). A driver that
    needs none waits only until they are compiled or cannot be, and a standby takes over at once.
    """
    wanted = (
        work.observed.desired is Desired.RUNNING
        and not work.completed
        and not work.observed.is_dropped
    )
    return wanted and work.observed.remote and work.restart_block is not RestartBlock.FAILED


def _why_end(draft: Draft, generation: int) -> Reason:
    """Return why the open driver, launched for a generation, must end; NONE if it continues."""
    return Reason.SHUTDOWN if draft.obs.paused else draft.subject.end_reason(draft, generation)


def _can_open(draft: Draft) -> bool:
    """Return whether there is a driver that accepts runs."""
    if draft.exit is not None or draft.lost or draft.end_wanted or not draft.driver_open:
        return False
    return draft.action not in {DriverAction.KILL, DriverAction.SEAL}


def _want_runs(draft: Draft) -> None:
    """Decide for each open run whether it continues, ends after its batch, or ends immediately."""
    for work in draft.queries:
        run, query = work.run, work.observed
        if run is None:
            continue
        work.ending = _why_ending(draft, work, run)
        if not work.ending:
            continue
        stop_requested = query.desired is Desired.STOPPED or run.generation < query.generation
        at_once = (
            _hung_in_start(draft, run)
            or work.ending is Reason.STALLED
            or not (stop_requested or draft.end_wanted)  # the cause is gone, the stop is not
            or (query.desired is Desired.STOPPED and query.stop_mode is StopMode.NOW)
        )
        work.deadline = stop_deadline(draft, work)
        work.want = Want.STOP if at_once or work.deadline <= draft.now else Want.DRAIN


def _why_ending(draft: Draft, work: QueryDraft, run: RunSeen) -> Reason:
    """Return why an open run should end, an operator's request first; NONE if it continues.

    A driver never reverses a stop, so a stop that has begun keeps its reason.
    """
    query = work.observed
    before = query.phase_reason if query.phase is Phase.STOPPING else Reason.NONE
    if query.desired is Desired.STOPPED:
        return Reason.ASKED_STOP
    if run.generation < query.generation:
        started = before in {Reason.ASKED_STOP, Reason.ASKED_START}
        return Reason.ASKED_START if started else Reason.ASKED_RESTART
    if draft.end_wanted is Reason.REPLACED:
        return draft.replaced_by
    if draft.end_wanted:
        return draft.end_wanted
    if _hung_in_start(draft, run):
        return Reason.START_TIMED_OUT
    if draft.subject.stalled(draft, work) or before is Reason.STALLED:
        return Reason.STALLED
    if run.stop_asked_at is None:
        return Reason.NONE
    return before or Reason.OTHER


def _hung_in_start(draft: Draft, run: RunSeen) -> bool:
    status = draft.obs.driver.sighting.status if draft.obs.driver else None
    if not draft.driver_ready or status is None or run.proven_at is not None:
        return False
    if run.status is not None and (run.status.started_at or run.status.state is RunState.RUNNING):
        return False
    since = max(run.created_at, run.waits_until or run.created_at)
    return is_stuck(
        began_at=since,
        advanced_at=_advanced_at(draft, run) or since,
        limits=draft.obs.limits,
        now=draft.now,
    )


def _advanced_at(draft: Draft, run: RunSeen) -> datetime | None:
    """Return when a run's start last advanced; None if that is not known.

    A driver that has not read its assignment yet reports nothing about the run, so its own progress
    counts.
    """
    if run.status is None:
        return draft.progress.at if draft.progress else None
    at = time_of(run.status.advanced_at)  # by its driver, which can report anything
    return min(draft.now, at) if at is not None else None


def _end_slow_driver(draft: Draft) -> None:
    """Terminate, then kill, a driver that takes too long to end; seal one that never began."""
    driver = draft.obs.driver
    if driver is None or draft.exit is not None or draft.lost or not draft.end_wanted:
        return
    draft.state = DriverState.STOPPING
    if draft.action in {DriverAction.SPAWN, DriverAction.SEAL}:  # there is no process to end
        draft.action = DriverAction.SEAL
        return
    since = driver.end_wanted_at or draft.now
    # A stop may have hung for a long time before the driver's end was requested: time counts from
    # that request.
    last = max([since, *(w.deadline for w in draft.queries if w.run and w.deadline)])
    leave = timedelta(seconds=draft.obs.limits.leave_s)
    if draft.action is DriverAction.KILL or draft.now > last + 2 * leave:
        draft.action = DriverAction.KILL
    elif (
        draft.now > last + leave
        or nothing_else_runs(draft)
        or (driver.sighting.pending is not None and not draft.driver_ready)  # it has no batch
    ):
        draft.action = DriverAction.TERMINATE
