"""The second half of a decision: what the driver and each run should do now."""

from datetime import timedelta

from queries.domain.protocol import RunState, Want
from queries.domain.states import Desired, DriverState, Hold, Phase, Reason, StopMode
from queries.domain.supervision import culprits, script
from queries.domain.supervision.decision import DriverAction
from queries.domain.supervision.draft import Draft, QueryDraft
from queries.domain.supervision.hanging import note_hanging, nothing_else_runs, stop_deadline
from queries.domain.supervision.observation import RunSeen


def decide_wants(draft: Draft) -> None:
    """Decide what the driver and each run should do now.

    1. Decide whether a driver is needed; launch one if it is missing, end one in which only what
       hangs is left.
    2. Open a run for each query that is due.
    3. Decide for each open run whether it continues, ends after its batch, or ends at once.
    4. Terminate, then kill a driver that takes too long to end; seal one that never began.
    """
    _want_driver(draft)
    note_hanging(draft)
    _open_runs(draft)
    _want_runs(draft)
    _end_slow_driver(draft)


def _want_driver(draft: Draft) -> None:
    """Decide whether the open driver is still needed, or whether to launch one."""
    obs, driver = draft.obs, draft.obs.driver
    if draft.lost:
        return
    if driver is not None and draft.exit is None:
        draft.end_wanted = draft.end_wanted or _end_reason(draft, driver.generation)
        return
    due = any(draft.due(work) for work in draft.queries) or script.due(draft)
    if draft.exit is not None or not due:
        return
    if draft.next_attempt_at is not None and draft.next_attempt_at > draft.now:
        return
    if not obs.code_ready:
        draft.waits, draft.action = Reason.WAITS_CODE, DriverAction.PREPARE
        return
    draft.waits = obs.slots.free
    if draft.waits is Reason.NONE:
        draft.action = DriverAction.LAUNCH
        draft.next_attempt_at = None


def _end_reason(draft: Draft, generation: int) -> Reason:
    if draft.obs.paused:
        return Reason.SHUTDOWN
    if draft.obs.script is not None:
        return script.end_reason(draft, generation)
    if draft.obs.generation > generation:
        return Reason.REPLACED
    if not any(_needs_driver(draft, work) for work in draft.queries):
        return Reason.NOT_WANTED
    return Reason.NONE


def _needs_driver(draft: Draft, work: QueryDraft) -> bool:
    """Return whether this query needs the open driver: it runs, is due, or soon will be."""
    if work.seen.desired is not Desired.RUNNING or work.completed:
        return False
    waits_soon = work.hold is Hold.NONE and draft.hold is not Hold.FAILED
    return work.run is not None or draft.due(work) or waits_soon


def _open_runs(draft: Draft) -> None:
    """Open a run for each query that is due and has a driver to take it.

    After some deaths of drivers in a row, for one at a time.
    """
    if draft.exit is not None or draft.lost or draft.end_wanted or not draft.driver_open:
        return
    if draft.action in {DriverAction.KILL, DriverAction.SEAL}:
        return
    if draft.obs.script is not None:
        return
    draft.one_by_one = culprits.one_by_one(draft)
    if not draft.one_by_one:
        for work in draft.queries:
            if draft.due(work) and not work.hangs:
                work.open_run = _cause(work)
        return
    first = culprits.next_on_turn(draft)
    if first is not None:
        first.open_run = _cause(first)
    starting = first or culprits.on_turn(draft)
    draft.turn = starting.seen.name if starting else ""


def _cause(work: QueryDraft) -> Reason:
    """Return why a run is opened, from what the query was doing until now."""
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


def _want_runs(draft: Draft) -> None:
    """Decide for each open run whether it continues, ends after its batch, or ends at once."""
    for work in draft.queries:
        run, seen = work.run, work.seen
        if run is None:
            continue
        asked = seen.desired is Desired.STOPPED or run.generation < seen.generation
        hung = _hung_in_start(draft, run)
        ending = seen.phase is Phase.STOPPING and seen.phase_reason is Reason.STALLED
        fresh = draft.obs.policy.restart_on_stall and seen.stalled
        work.stalled = (fresh or ending) and not asked and draft.obs.script is None
        told = run.stop_asked_at is not None  # no driver takes a stop back
        if not (asked or draft.end_wanted or hung or work.stalled or told):
            continue
        at_once = (
            hung
            or work.stalled
            or not (asked or draft.end_wanted)  # the cause is gone, the stop is not
            or (seen.desired is Desired.STOPPED and seen.stop_mode is StopMode.NOW)
        )
        work.deadline = stop_deadline(draft, work)
        work.want = Want.STOP if at_once or work.deadline <= draft.now else Want.DRAIN


def _hung_in_start(draft: Draft, run: RunSeen) -> bool:
    status = draft.obs.driver.sighting.status if draft.obs.driver else None
    if not draft.driver_ready or status is None or run.proven_at is not None:
        return False
    if run.status is not None and (run.status.started_at or run.status.state is RunState.RUNNING):
        return False
    return draft.now - run.created_at > timedelta(seconds=draft.obs.limits.start_s)


def _end_slow_driver(draft: Draft) -> None:
    """Terminate, then kill a driver that takes too long to end; seal one that never began."""
    driver = draft.obs.driver
    if driver is None or draft.exit is not None or draft.lost or not draft.end_wanted:
        return
    draft.state = DriverState.STOPPING
    if draft.action in {DriverAction.SPAWN, DriverAction.SEAL}:  # there is no process to end
        draft.action = DriverAction.SEAL
        return
    since = driver.end_wanted_at or draft.now
    # A stop may have hung for long before the driver is to end: that counts from now on.
    last = max([since, *(w.deadline for w in draft.queries if w.run and w.deadline)])
    leave = timedelta(seconds=draft.obs.limits.leave_s)
    if draft.action is DriverAction.KILL or draft.now > last + 2 * leave:
        draft.action = DriverAction.KILL
    elif draft.now > last + leave or nothing_else_runs(draft):
        draft.action = DriverAction.TERMINATE
