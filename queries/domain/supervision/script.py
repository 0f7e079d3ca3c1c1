"""An application that runs a user's script: what is wanted of it, and what its ends mean.

The script decides which queries there are and when they start; supervision decides whether the
script runs. So the application has the desired state and the ladder, and its queries have none:
each of them shows what the script, or the end of its driver, has made of it.
"""

from queries.domain.protocol import ScriptReport, ScriptState
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import (
    STOPPED_PHASES,
    Desired,
    Hold,
    Phase,
    Reason,
    RunOutcome,
)
from queries.domain.supervision import outcomes
from queries.domain.supervision.decision import DriverAction, Fault, RunEnd, ScriptDecision
from queries.domain.supervision.draft import Draft, QueryDraft
from queries.domain.supervision.phases import Named, silent, taken, with_run

#: What a driver says of a script that has ended by itself while the driver is still there.
_OVER = frozenset({ScriptState.FAILED, ScriptState.STOPPING})
#: From each phase of a script, those that supervision may make of it.
_NEXT = {
    Phase.STOPPED: "PENDING STARTING FAILED",
    Phase.COMPLETED: "PENDING STARTING STOPPED FAILED",
    Phase.PENDING: "STARTING BACKOFF FAILED STOPPED",
    Phase.STARTING: "RUNNING STOPPING STOPPED COMPLETED PENDING BACKOFF BROKEN FAILED LOST",
    Phase.RUNNING: "STARTING STOPPING STOPPED COMPLETED PENDING BACKOFF BROKEN FAILED LOST",
    Phase.STOPPING: "STARTING STOPPED COMPLETED PENDING BACKOFF BROKEN FAILED LOST",
    Phase.BACKOFF: "STARTING PENDING STOPPED FAILED",
    Phase.BROKEN: "STARTING PENDING STOPPED",
    Phase.FAILED: "STARTING PENDING STOPPED",
    Phase.LOST: "STARTING RUNNING STOPPING STOPPED COMPLETED PENDING BACKOFF BROKEN FAILED",
}
#: (from, to) of every change of a script's phase; compared with `docs/scripts.md` by a test.
TRANSITIONS: frozenset[tuple[Phase, Phase]] = frozenset(
    (before, Phase(after)) for before, names in _NEXT.items() for after in names.split()
)


# --- what has ended -------------------------------------------------------------------


def has_completed(draft: Draft) -> bool:
    """Return whether the driver's script has ended by itself, with nothing left to run."""
    said = _report(draft)
    return said is not None and said.state is ScriptState.COMPLETED


def climb(draft: Draft, fault: Fault) -> None:
    """Schedule the next attempt after a failure that has been counted, or hold the script."""
    seen = draft.obs.script
    assert seen is not None
    rung = outcomes.climb(
        draft.obs.policy,
        fault,
        failures=draft.failures,
        recent=seen.recent_failures,
        hold=draft.hold,
        key=f"application:{draft.obs.application}",
        now=draft.now,
    )
    draft.hold, draft.next_attempt_at, draft.hold_reason = (
        rung.hold,
        rung.next_attempt_at,
        rung.detail,
    )


def settle(draft: Draft, work: QueryDraft, ended: RunEnd) -> None:
    """Note the end of a query's run; what follows is the script's to say, or its driver's end."""
    work.ended, work.run = ended, None
    work.detail = NOTHING
    if ended.fault is not None:
        title = ended.fault.classified.title.rstrip(".")
        work.detail = Because(Detail.SCRIPT_MAY_RETRY, {"title": title})


# --- what is wanted -------------------------------------------------------------------


def due(draft: Draft) -> bool:
    """Return whether there is a script that should have a driver now."""
    if not _wanted(draft) or draft.obs.paused or draft.hold is Hold.FAILED:
        return False
    return draft.next_attempt_at is None or draft.next_attempt_at <= draft.now


def end_reason(draft: Draft, generation: int) -> Reason:
    """Return why the open driver, launched for a generation, is to end; NONE: it goes on."""
    if not _wanted(draft):
        return Reason.NOT_WANTED
    stalled = draft.obs.policy.restart_on_stall and any(w.seen.stalled for w in draft.queries)
    return Reason.REPLACED if draft.obs.generation > generation or stalled else Reason.NONE


def reached(draft: Draft) -> bool:
    """Return whether the newest generation is reached: the script runs, or has ended as asked."""
    phase, driver = _phase(draft)[0], draft.obs.driver
    if not _wanted(draft):
        return phase in STOPPED_PHASES
    current = driver is not None and driver.generation >= draft.obs.generation
    return current and phase is Phase.RUNNING


def _wanted(draft: Draft) -> bool:
    seen = draft.obs.script
    return seen is not None and seen.desired is Desired.RUNNING and not draft.completed


# --- what it is called ----------------------------------------------------------------


def decision(draft: Draft) -> ScriptDecision | None:
    """Return the script's state now, None where the application has none."""
    if draft.obs.script is None:
        return None
    return ScriptDecision(*_phase(draft), completed=draft.completed)


def _phase(draft: Draft) -> Named:
    seen = draft.obs.script
    assert seen is not None
    if draft.driver_open:
        return _with_driver(draft)
    if draft.completed:
        return Phase.COMPLETED, Reason.COMPLETED, Because(Detail.SCRIPT_DONE)
    if seen.desired is Desired.STOPPED:
        fresh = draft.obs.generation > draft.obs.seen_generation
        if seen.phase in STOPPED_PHASES and not fresh:
            return seen.phase, seen.reason, seen.detail
        return Phase.STOPPED, Reason.STOPPED, NOTHING
    if draft.hold is Hold.FAILED:
        return Phase.FAILED, Reason.FAILED_FATAL, draft.hold_reason
    if draft.lost or draft.obs.paused or draft.waits is not Reason.NONE:
        return _waiting(draft)
    if draft.hold is Hold.BROKEN:
        return Phase.BROKEN, Reason.FAILED_POISON, draft.hold_reason
    if draft.next_attempt_at is not None and draft.next_attempt_at > draft.now:
        return Phase.BACKOFF, Reason.FAILED_RETRY, draft.hold_reason
    return _waiting(draft)


def _with_driver(draft: Draft) -> Named:
    if draft.lost:
        return Phase.LOST, Reason.HOST_SILENT, silent(draft, Detail.LOST_ON)
    if draft.end_wanted in {Reason.NOT_WANTED, Reason.SHUTDOWN}:
        why = Reason.SHUTDOWN if draft.end_wanted is Reason.SHUTDOWN else Reason.ASKED_STOP
        return Phase.STOPPING, why, Because(Detail.SCRIPT_ENDING)
    if draft.end_wanted:
        return Phase.STOPPING, Reason.ASKED_RESTART, Because(Detail.SCRIPT_RESTARTS)
    if not draft.driver_ready:
        return Phase.STARTING, Reason.WAITS_DRIVER, Because(Detail.SESSION_STARTING)
    said = _report(draft)
    if said is not None and said.state in _OVER:
        return Phase.STOPPING, Reason.NONE, Because(Detail.SCRIPT_OVER)
    returned = said is not None and said.state is ScriptState.RETURNED
    detail = Detail.SCRIPT_RETURNED if returned else Detail.SCRIPT_RUNS
    return Phase.RUNNING, Reason.NONE, Because(detail)


def _waiting(draft: Draft) -> Named:
    if draft.lost:
        return Phase.PENDING, Reason.HOST_SILENT, silent(draft, Detail.WAITS_HOST)
    if draft.obs.paused:
        return Phase.PENDING, Reason.SHUTDOWN, Because(Detail.WITH_INSTALLATION)
    if draft.waits is not Reason.NONE:
        return Phase.PENDING, draft.waits, taken(draft)
    return Phase.PENDING, Reason.WAITS_DRIVER, Because(Detail.DRIVER_LEAVING)


def name_query(draft: Draft, work: QueryDraft) -> Named:
    """Return the phase of a query that the script has started at some time."""
    script, seen = draft.obs.script, work.seen
    assert script is not None
    if work.run is not None:
        return with_run(draft, work)
    if rest := _at_rest(draft, work):
        return rest
    if draft.hold is Hold.FAILED:
        return Phase.FAILED, Reason.FAILED_FATAL, draft.hold_reason
    if draft.driver_open and draft.action is not DriverAction.LAUNCH:
        if work.ended is not None and work.ended.fault is not None:
            return Phase.BACKOFF, Reason.FAILED_RETRY, work.detail
        if seen.phase is Phase.BACKOFF:
            return seen.phase, seen.phase_reason, seen.phase_detail
    elif draft.next_attempt_at is not None and draft.next_attempt_at > draft.now:
        return Phase.BACKOFF, Reason.DRIVER_DIED, draft.hold_reason
    if draft.driver_open:
        return Phase.PENDING, Reason.WAITS_DRIVER, Because(Detail.SCRIPT_STARTS)
    return _waiting(draft)


def _at_rest(draft: Draft, work: QueryDraft) -> Named | None:
    """Return the phase of a query that is not to run: the script ended it, or is itself to end."""
    ended, seen = work.ended, work.seen
    if seen.gone:
        return Phase.STOPPED, Reason.SCRIPT_DROPPED, NOTHING
    if ended is not None and ended.outcome is RunOutcome.COMPLETED:
        return Phase.COMPLETED, Reason.COMPLETED, Because(Detail.ALL_READ)
    if ended is None and seen.phase in STOPPED_PHASES:
        return seen.phase, seen.phase_reason, seen.phase_detail
    said = _report(draft)
    asks = said is not None and said.question is not None  # that ends all; it stopped nothing
    by_itself = ended is not None and ended.outcome is RunOutcome.STOPPED and not asks
    if by_itself and not draft.end_wanted and draft.fault is None:
        return Phase.STOPPED, Reason.STOPPED, Because(Detail.SCRIPT_STOPPED)
    if not _wanted(draft):
        return Phase.STOPPED, Reason.STOPPED, NOTHING
    return None


def _report(draft: Draft) -> ScriptReport | None:
    driver = draft.obs.driver
    status = driver.sighting.status if driver else None
    return status.script if status else None
