"""The second half of a decision: what the driver and each run should do now."""

from datetime import datetime, timedelta

from headgate_ground.tolerant.values import time_of
from queries.domain.protocol import RunState, Want
from queries.domain.states import (
    Desired,
    DriverState,
    Hold,
    Phase,
    Reason,
    StopMode,
)
from queries.domain.supervision.decision import DriverAction
from queries.domain.supervision.draft import Draft, QueryDraft
from queries.domain.supervision.hanging import note_hanging, nothing_else_runs, stop_deadline
from queries.domain.supervision.observation import RunSeen
from queries.domain.supervision.progress import is_stuck


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
    return wanted and work.observed.remote and work.hold is not Hold.FAILED


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
    elif draft.now > last + leave or nothing_else_runs(draft):
        draft.action = DriverAction.TERMINATE
