"""An application that runs a user's script: its desired state, and the meaning of the script's end.

The script decides which queries exist and when they start; supervision decides whether the script
runs. So the application has the desired state and the backoff, and its queries have neither: each
shows the effect of the script, or of its driver's end.
"""

from queries.domain.protocol import ScriptReport, ScriptState
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import (
    STOPPED_PHASES,
    Desired,
    Phase,
    Reason,
    RestartBlock,
    RunOutcome,
)
from queries.domain.supervision.decision import (
    Draft,
    DriverAction,
    QueryDraft,
    RunEnd,
    ScriptDecision,
)
from queries.domain.supervision.phases import (
    Named,
    driver_failure,
    lacking_on_host,
    late_start,
    on_hold_reason,
    silent,
    starting_session,
    with_run,
)

#: Driver reports about a script that has ended by itself while the driver still exists.
_OVER = frozenset({ScriptState.FAILED, ScriptState.STOPPING})
#: The phases to which supervision may move a script from each phase.
_NEXT = {
    Phase.STOPPED: "PENDING STARTING FAILED",
    Phase.COMPLETED: "PENDING STARTING STOPPED FAILED",
    Phase.PENDING: "STARTING BACKOFF FAILED STOPPED",
    Phase.STARTING: "RUNNING STOPPING STOPPED COMPLETED PENDING BACKOFF ON_HOLD FAILED UNREACHABLE",
    Phase.RUNNING: "STARTING STOPPING STOPPED COMPLETED PENDING BACKOFF ON_HOLD FAILED UNREACHABLE",
    Phase.STOPPING: "STARTING STOPPED COMPLETED PENDING BACKOFF ON_HOLD FAILED UNREACHABLE",
    Phase.BACKOFF: "STARTING PENDING STOPPED FAILED",
    Phase.ON_HOLD: "STARTING PENDING STOPPED",
    Phase.FAILED: "STARTING PENDING STOPPED",
    Phase.UNREACHABLE: "STARTING RUNNING STOPPING STOPPED COMPLETED PENDING BACKOFF ON_HOLD FAILED",
}
#: (from, to) of every phase change of a script; a test compares it with `docs/scripts.md`.
TRANSITIONS: frozenset[tuple[Phase, Phase]] = frozenset(
    (before, Phase(after)) for before, names in _NEXT.items() for after in names.split()
)


# --- ends ------------------------------------------------------------------------------


def has_completed(draft: Draft) -> bool:
    """Return whether the driver's script has ended on its own, with nothing left to run."""
    report = _report(draft)
    return report is not None and report.state is ScriptState.COMPLETED


def run_ended(draft: Draft, work: QueryDraft, ended: RunEnd) -> None:
    """Note the end of a query's run; the script, or its driver's end, decides what follows."""
    work.ended, work.run = ended, None
    work.detail = NOTHING
    if ended.fault is not None:
        title = ended.fault.classified.title.rstrip(".")
        work.detail = Because(Detail.SCRIPT_MAY_RETRY, {"title": title})


def is_sequential(draft: Draft) -> bool:
    """Return False: the script starts its queries."""
    return False


def blame(draft: Draft) -> None:
    """Do nothing: the script itself is retried, or put on hold."""


def stopped_by_itself() -> bool:
    """Return True: a script can stop its queries itself."""
    return True


# --- desired state ---------------------------------------------------------------------


def is_due(draft: Draft, work: QueryDraft) -> bool:
    """Return False: the script starts its queries."""
    return False


def needs_driver(draft: Draft) -> bool:
    """Return whether the script should have a driver now."""
    if not _wanted(draft) or draft.obs.paused or draft.restart_block is RestartBlock.FAILED:
        return False
    return draft.next_attempt_at is None or draft.next_attempt_at <= draft.now


def end_reason(draft: Draft, generation: int) -> Reason:
    """Return why the open driver, launched for a generation, should end; NONE if it continues."""
    if not _wanted(draft):
        return Reason.NOT_WANTED
    if draft.obs.generation > generation:
        return Reason.REPLACED
    stalled = draft.obs.policy.restart_on_stall and any(w.observed.stalled for w in draft.queries)
    return Reason.STALLED if stalled else Reason.NONE


def open_runs(draft: Draft) -> None:
    """Do nothing: the script starts its queries."""


def stalled(draft: Draft, work: QueryDraft) -> bool:
    """Return False: a stalled query ends the driver, and the script starts again."""
    return False


def reached(draft: Draft) -> bool:
    """Return whether the newest generation is reached: the script runs, or ended as requested."""
    phase, driver = _phase(draft)[0], draft.obs.driver
    if not _wanted(draft):
        return phase in STOPPED_PHASES
    current = driver is not None and driver.generation >= draft.obs.generation
    return current and phase is Phase.RUNNING


def _wanted(draft: Draft) -> bool:
    script = draft.obs.script
    return script is not None and script.desired is Desired.RUNNING and not draft.completed


# --- phases -----------------------------------------------------------------------------


def decision(draft: Draft) -> ScriptDecision:
    """Return the script's state now."""
    return ScriptDecision(*_phase(draft), completed=draft.completed)


def _phase(draft: Draft) -> Named:
    script = draft.obs.script
    assert script is not None
    if draft.driver_open:
        return _with_driver(draft)
    if draft.completed:
        return Phase.COMPLETED, Reason.SCRIPT_ENDED, Because(Detail.SCRIPT_DONE)
    if script.desired is Desired.STOPPED:
        fresh = draft.obs.generation > draft.obs.seen_generation
        if script.phase in STOPPED_PHASES and not fresh:
            return script.phase, script.reason, script.detail
        return Phase.STOPPED, Reason.STOPPED, NOTHING
    if draft.restart_block is RestartBlock.FAILED:
        return Phase.FAILED, Reason.FAILED_FATAL, draft.restart_block_reason
    if draft.restart_block is RestartBlock.ON_HOLD:
        return (
            Phase.ON_HOLD,
            on_hold_reason(draft.restart_block_cause, script.phase, script.reason),
            draft.restart_block_reason,
        )
    if draft.lost or draft.obs.paused or draft.waits is not Reason.NONE:
        return _waiting(draft)
    if draft.next_attempt_at is not None and draft.next_attempt_at > draft.now:
        return Phase.BACKOFF, Reason.FAILED_RETRY, draft.restart_block_reason
    return _waiting(draft)


def _with_driver(draft: Draft) -> Named:
    if draft.lost:
        return Phase.UNREACHABLE, Reason.HOST_SILENT, silent(draft, Detail.LOST_ON)
    if draft.end_wanted in {Reason.NOT_WANTED, Reason.SHUTDOWN}:
        why = Reason.SHUTDOWN if draft.end_wanted is Reason.SHUTDOWN else Reason.ASKED_STOP
        return Phase.STOPPING, why, Because(Detail.SCRIPT_ENDING)
    if draft.end_wanted is Reason.START_TIMED_OUT:
        assert draft.obs.driver is not None, "it is its end that is wanted"
        late = late_start(draft, draft.obs.driver.began_at, driver=True)
        return Phase.STOPPING, draft.end_wanted, late
    if draft.end_wanted:
        replaced = draft.end_wanted is Reason.REPLACED
        why = Reason.ASKED_RESTART if replaced else draft.end_wanted
        return Phase.STOPPING, why, Because(Detail.SCRIPT_RESTARTS)
    if not draft.driver_ready:
        return Phase.STARTING, Reason.WAITS_DRIVER, starting_session(draft)
    report = _report(draft)
    if report is not None and report.question is not None:
        return Phase.STOPPING, Reason.SCRIPT_ASKS, Because(Detail.SCRIPT_ASKS)
    if report is not None and report.state in _OVER:
        failed = report.state is ScriptState.FAILED
        why = Reason.SCRIPT_FAILED if failed else Reason.SCRIPT_ENDED
        return Phase.STOPPING, why, Because(Detail.DRIVER_ENDING)
    returned = report is not None and report.state is ScriptState.RETURNED
    detail = Detail.SCRIPT_RETURNED if returned else Detail.SCRIPT_RUNS
    return Phase.RUNNING, Reason.NONE, Because(detail)


def _waiting(draft: Draft) -> Named:
    if draft.lost:
        return Phase.PENDING, Reason.HOST_SILENT, silent(draft, Detail.WAITS_HOST)
    if draft.obs.paused:
        return Phase.PENDING, Reason.SHUTDOWN, Because(Detail.WITH_INSTALLATION)
    if draft.waits is not Reason.NONE:
        return Phase.PENDING, draft.waits, lacking_on_host(draft)
    reason = draft.exit_reason if draft.exit is not None else Reason.WAITS_DRIVER
    return Phase.PENDING, reason, draft.restart_block_reason


def name_query(draft: Draft, work: QueryDraft) -> Named:
    """Return the phase of a query that the script has started at some time."""
    script, query = draft.obs.script, work.observed
    assert script is not None
    if work.run is not None:
        return with_run(draft, work)
    if rest := _at_rest(draft, work):
        return rest
    if draft.restart_block is RestartBlock.FAILED:
        return Phase.FAILED, Reason.FAILED_FATAL, draft.restart_block_reason
    if draft.driver_open and draft.action is not DriverAction.LAUNCH:
        if work.ended is not None and work.ended.fault is not None:
            return Phase.BACKOFF, Reason.FAILED_RETRY, work.detail
        if query.phase is Phase.BACKOFF:
            return query.phase, query.phase_reason, query.phase_detail
    elif draft.next_attempt_at is not None and draft.next_attempt_at > draft.now:
        return Phase.BACKOFF, driver_failure(draft), draft.restart_block_reason
    if draft.driver_open:
        return Phase.PENDING, Reason.WAITS_DRIVER, Because(Detail.SCRIPT_STARTS)
    return _waiting(draft)


def _at_rest(draft: Draft, work: QueryDraft) -> Named | None:
    """Return the phase of a query that should not run: the script ended it, or must itself end."""
    ended, query = work.ended, work.observed
    if query.is_dropped:
        return Phase.STOPPED, Reason.SCRIPT_DROPPED, NOTHING
    if ended is not None and ended.outcome is RunOutcome.COMPLETED:
        return Phase.COMPLETED, Reason.COMPLETED, Because(Detail.ALL_READ)
    if ended is None and query.phase in STOPPED_PHASES:
        return query.phase, query.phase_reason, query.phase_detail
    report = _report(draft)
    asks = report is not None and report.question is not None  # that ends all; it stopped nothing
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
