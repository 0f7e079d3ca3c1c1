"""The phase of a query with its reason, every possible change of phase, and the operator's
verbs.

Tests compare `TRANSITIONS` with the state diagram in `docs/architecture.md` and with what `decide`
does.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from queries.domain.definitions.spec import HOLDING_TRIGGERS
from queries.domain.errors import NotAllowed
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import (
    DRIVER_FAILURES,
    FAILED_PHASES,
    STOPPED_PHASES,
    Desired,
    Phase,
    Reason,
    RestartBlock,
    StopMode,
    Verb,
)
from queries.domain.supervision.decision import Draft, QueryDraft
from queries.domain.supervision.observation import RunSeen, missing_executors
from queries.domain.supervision.progress import about, has_taken_longest

#: The phases to which supervision may move a query from each phase.
_NEXT = {
    Phase.STOPPED: "PENDING STARTING FAILED",
    Phase.COMPLETED: "PENDING STARTING STOPPED",
    Phase.PENDING: "STARTING BACKOFF FAILED STOPPED STOPPING",
    Phase.STARTING: "RUNNING PENDING COMPLETED BACKOFF ON_HOLD FAILED STOPPING STOPPED UNREACHABLE",
    Phase.RUNNING: "PENDING STARTING COMPLETED BACKOFF ON_HOLD FAILED STOPPING STOPPED UNREACHABLE",
    Phase.STOPPING: "STOPPED PENDING STARTING COMPLETED BACKOFF FAILED ON_HOLD UNREACHABLE",
    Phase.BACKOFF: "PENDING STARTING STOPPED FAILED STOPPING",
    Phase.ON_HOLD: "PENDING STARTING STOPPED STOPPING",
    Phase.FAILED: "PENDING STARTING BACKOFF STOPPED STOPPING",
    Phase.UNREACHABLE: "STARTING RUNNING STOPPING STOPPED PENDING BACKOFF ON_HOLD COMPLETED FAILED",
}
#: (from, to) of every phase change that supervision makes.
TRANSITIONS: frozenset[tuple[Phase, Phase]] = frozenset(
    (before, Phase(after)) for before, names in _NEXT.items() for after in names.split()
)


@dataclass(frozen=True, slots=True)
class TransitionInput:
    """What the effect of an operator's verb depends on."""

    name: str
    desired: Desired
    phase: Phase
    stop_mode: StopMode
    archived: bool
    has_run: bool
    open_restart: bool  # a restart was requested and is not finished
    away: str = ""  # the host of its open run, if that host is not responding


@dataclass(frozen=True, slots=True)
class DesiredStateChange:
    """How a verb changes the desired state; each change increases the generation by one."""

    verb: Verb
    desired: Desired
    stop_mode: StopMode
    pin: bool  # use the newest revision


def start(current: TransitionInput) -> DesiredStateChange | None:
    """Return the change for a start; None if the query is already running or starting."""
    _alive(current)
    if current.desired is Desired.RUNNING and current.phase not in FAILED_PHASES:
        return None
    return DesiredStateChange(Verb.START, Desired.RUNNING, StopMode.GRACEFUL, pin=True)


def retry(current: TransitionInput) -> DesiredStateChange | None:
    """Return the change that retries a failed query unchanged; None if it has not failed."""
    _alive(current)
    if current.desired is not Desired.RUNNING or current.phase not in FAILED_PHASES:
        return None
    return DesiredStateChange(Verb.START, Desired.RUNNING, StopMode.GRACEFUL, pin=False)


def stop(current: TransitionInput, mode: StopMode) -> DesiredStateChange | None:
    """Return the change for a stop; None if the query has already stopped or is stopping.

    An immediate stop overrides a graceful one; a graceful stop does not slow down an immediate one.
    """
    _alive(current)
    if current.desired is Desired.STOPPED:
        if current.phase in STOPPED_PHASES and not current.has_run:
            return None
        if not (mode is StopMode.NOW and current.stop_mode is StopMode.GRACEFUL):
            return None
    return DesiredStateChange(Verb.STOP, Desired.STOPPED, mode, pin=False)


def restart(current: TransitionInput) -> DesiredStateChange | None:
    """Return the change for a restart; None if one is under way."""
    _alive(current)
    if (
        current.open_restart
        and current.desired is Desired.RUNNING
        and current.phase not in FAILED_PHASES
    ):
        return None
    return DesiredStateChange(Verb.RESTART, Desired.RUNNING, StopMode.GRACEFUL, pin=True)


def archive(current: TransitionInput) -> None:
    """Raise `NotAllowed` unless the query may be deleted now."""
    _alive(current)
    stopping = current.has_run or current.phase is Phase.STOPPING
    if stopping and current.away:
        raise NotAllowed(
            f"{current.name} may still run on host {current.away}, which is not responding.",
            way_out="Stop the query, wait for that host or declare it gone, then delete the query.",
        )
    if current.desired is not Desired.STOPPED or stopping:
        raise NotAllowed(
            f"{current.name} is {current.phase.label.lower()} and can be deleted only when "
            "stopped.",
            way_out="Stop it first.",
        )


def _alive(current: TransitionInput) -> None:
    if current.archived:
        raise NotAllowed(f"{current.name} has been deleted.", way_out="Define it again.")


#: A continuous or real-time query without a result for this long may be short of cores.
PROOF_OF_CORES = timedelta(seconds=30)

#: Reason for which a query is waiting -> cause of the run that follows.
LEADS_TO = {
    Reason.ASKED_STOP: Reason.ASKED_START,  # started while it was stopping
    Reason.ASKED_START: Reason.ASKED_START,
    Reason.ASKED_RESTART: Reason.ASKED_RESTART,
    Reason.STALLED: Reason.STALLED,
    Reason.FAILURE_SCOPE: Reason.FAILURE_SCOPE,
    Reason.REPLACED: Reason.REPLACED,
    Reason.HANGS: Reason.HANGS,
    Reason.FENCED: Reason.FENCED,
    Reason.SHUTDOWN: Reason.RESUMED,
    Reason.DRIVER_DIED: Reason.DRIVER_DIED,
    Reason.START_TIMED_OUT: Reason.RETRY_DUE,
    Reason.SESSION_FAILED: Reason.RETRY_DUE,
}

Named = tuple[Phase, Reason, Because]


def name_phase(draft: Draft, work: QueryDraft) -> Named:
    """Return the phase, its reason and the current situation."""
    if work.run is not None:
        return with_run(draft, work)
    if work.open_run is not None:
        return Phase.STARTING, work.open_run, Because(Detail.GIVEN)
    if work.observed.desired is Desired.STOPPED or work.completed:
        return _at_rest(draft, work)
    return _wanted_without_run(draft, work)


def reached(draft: Draft, work: QueryDraft, phase: Phase) -> bool:
    """Return whether the query has reached its newest generation."""
    if work.completed or work.observed.desired is Desired.STOPPED:
        return phase in STOPPED_PHASES
    current = work.run is not None and work.run.generation == work.observed.generation
    return phase is Phase.RUNNING and current


def with_run(draft: Draft, work: QueryDraft) -> Named:
    """Return the phase of a query that has an open run."""
    run = work.run
    assert run is not None
    if draft.lost:
        return Phase.UNREACHABLE, Reason.HOST_SILENT, silent(draft, Detail.LOST_ON)
    if work.hangs:
        return Phase.STOPPING, Reason.STUCK, about(draft, work)
    if work.ending:
        return _stopping(draft, work, run)
    if run.proven_at is not None:
        reason = Reason.COMMITTED if run.committed else Reason.IDLE
        return Phase.RUNNING, reason, NOTHING
    if not draft.driver_ready:
        return Phase.STARTING, Reason.WAITS_DRIVER, starting_session(draft)
    if run.waits_until is not None:
        until = Because(Detail.FORMER_MAY_RUN, {"until": f"{run.waits_until:%H:%M:%S}"})
        return Phase.STARTING, Reason.WAITS_LOCK, until
    unheard = work.observed.source_unreachable_since
    if unheard is not None:
        since = Because(Detail.SOURCE_SILENT, {"since": f"{unheard:%H:%M:%S}"})
        return Phase.STARTING, Reason.WAITS_SOURCE, since
    if run.status is None or run.status.started_at is None:
        detail = _slowed(draft, Because(Detail.QUERY_BUILDING))
        return Phase.STARTING, Reason.WAITS_DRIVER, detail
    missing = _missing_resources(draft)
    if missing is not None:
        return Phase.STARTING, Reason.WAITS_EXECUTOR, missing
    unproven = _unproven(draft, run.trigger, run.status.started_at)
    return Phase.STARTING, Reason.WAITS_COMMIT, _slowed(draft, unproven)


def starting_session(draft: Draft) -> Because:
    """Describe what a driver is waiting for while its Spark session is not up."""
    return (
        _pending(draft)
        or _missing_resources(draft)
        or _slowed(draft, Because(Detail.SESSION_STARTING))
    )


def _pending(draft: Draft) -> Because | None:
    """Return why a driver's pod does not run yet; None if it runs, or the driver is a process."""
    pending = draft.obs.driver.sighting.pending if draft.obs.driver else None
    if pending is None:
        return None
    return Because(Detail.POD_WAITS, {"about": pending}) if pending else Because(Detail.POD_STARTS)


def late_start(draft: Draft, began_at: datetime, *, driver: bool) -> Because:
    """Return why a start is abandoned: that of a query in its driver, or of the driver itself."""
    limits = draft.obs.limits
    if has_taken_longest(began_at, limits, draft.now):
        code, seconds = (Detail.DRIVER_LATE if driver else Detail.START_LATE), limits.start_max_s
    else:
        code, seconds = (Detail.DRIVER_STUCK if driver else Detail.START_STUCK), limits.start_s
    detail = Because(code, {"seconds": f"{seconds:g}"})
    if not draft.busy:
        return detail
    return Because(Detail.BUSY, {"about": detail.as_json(), "figure": draft.busy})


def _slowed(draft: Draft, detail: Because) -> Because:
    """Return a detail of a start, and that the host is busy if it is."""
    return Because(Detail.IS_BUSY, {"about": detail.as_json()}) if draft.busy else detail


def _missing_resources(draft: Draft) -> Because | None:
    """Return the resources that a driver lacks on its cluster; None if none are missing."""
    status = draft.obs.driver.sighting.status if draft.obs.driver else None
    if status is None or status.wanted is None:
        return None
    return Because(Detail.NO_EXECUTOR, {"about": missing_executors(status.wanted)})


def _stopping(draft: Draft, work: QueryDraft, run: RunSeen) -> Named:
    """Return why an open run is ending, and what follows."""
    detail = Because(Detail.STARTS_AFTER)
    match work.ending:
        case Reason.NOT_WANTED:  # the script that started it should not run
            return Phase.STOPPING, Reason.ASKED_STOP, Because(Detail.BATCH_ENDING)
        case Reason.ASKED_STOP:
            detail = Because(Detail.BATCH_ENDING)
        case Reason.STALLED:
            detail = Because(Detail.NO_PROGRESS)
        case Reason.SHUTDOWN:
            detail = Because(Detail.WITH_INSTALLATION)
        case Reason.START_TIMED_OUT:
            driver = None if draft.driver_ready else draft.obs.driver
            began = run.created_at if driver is None else driver.began_at
            detail = late_start(draft, began, driver=driver is not None)
    return Phase.STOPPING, work.ending, detail


def _unproven(draft: Draft, trigger: str, started_at: str) -> Because:
    """Describe what a started query is waiting for; Spark does not report missing cores."""
    started = datetime.fromisoformat(started_at)
    if trigger in HOLDING_TRIGGERS and draft.now - started >= PROOF_OF_CORES:
        what = "continuous epoch" if trigger == "continuous" else "batch"
        since = started.astimezone(UTC).strftime("%H:%M:%S")
        return Because(Detail.NO_CORES, {"what": what, "since": since})
    return Because(Detail.UNPROVEN)


def _at_rest(draft: Draft, work: QueryDraft) -> Named:
    if work.hangs:
        return Phase.STOPPING, Reason.STUCK, about(draft, work)
    fresh = work.observed.generation > work.observed.seen_generation
    if work.completed or (work.observed.phase is Phase.COMPLETED and not fresh):
        return Phase.COMPLETED, Reason.COMPLETED, Because(Detail.ALL_READ)
    if work.observed.phase is Phase.STOPPED and not fresh and work.ended is None:
        return Phase.STOPPED, work.observed.phase_reason, NOTHING
    return Phase.STOPPED, Reason.STOPPED, NOTHING


def _wanted_without_run(draft: Draft, work: QueryDraft) -> Named:
    if work.restart_block is RestartBlock.FAILED:
        return Phase.FAILED, Reason.FAILED_FATAL, work.detail
    if work.restart_block is RestartBlock.ON_HOLD:
        return (
            Phase.ON_HOLD,
            on_hold_reason(
                work.restart_block_cause, work.observed.phase, work.observed.phase_reason
            ),
            work.detail,
        )
    if draft.restart_block is RestartBlock.FAILED:
        return Phase.FAILED, Reason.FAILED_FATAL, draft.restart_block_reason
    if draft.restart_block is RestartBlock.ON_HOLD and not draft.driver_open:
        return (
            Phase.ON_HOLD,
            on_hold_reason(
                draft.restart_block_cause, work.observed.phase, work.observed.phase_reason
            ),
            draft.restart_block_reason,
        )
    if draft.lost:
        return Phase.PENDING, Reason.HOST_SILENT, silent(draft, Detail.WAITS_HOST)
    if draft.obs.paused:
        return Phase.PENDING, Reason.SHUTDOWN, Because(Detail.WITH_INSTALLATION)
    if work.hangs:
        return Phase.PENDING, Reason.WAITS_THREAD, about(draft, work)
    if work.next_attempt_at is not None and work.next_attempt_at > draft.now:
        locked = work.refused or (
            work.ended is None and work.observed.phase_reason is Reason.WAITS_LOCK
        )
        return Phase.BACKOFF, Reason.WAITS_LOCK if locked else Reason.FAILED_RETRY, work.detail
    if draft.next_attempt_at is not None and draft.next_attempt_at > draft.now:
        return Phase.BACKOFF, driver_failure(draft), draft.restart_block_reason
    if draft.waits is not Reason.NONE:
        return Phase.PENDING, draft.waits, lacking_on_host(draft)
    if draft.is_sequential and draft.driver_open:
        return Phase.PENDING, Reason.WAITS_TURN, _waits_for_others(draft)
    # The reason for waiting becomes the cause of its next run.
    reason = work.observed.phase_reason
    if draft.exit is not None and (draft.fault is not None or reason not in LEADS_TO):
        reason = draft.replaced_by if draft.exit_reason is Reason.REPLACED else draft.exit_reason
    elif reason not in LEADS_TO:
        reason = Reason.WAITS_DRIVER
    detail = Because(Detail.DRIVER_LEAVING) if draft.driver_open else draft.restart_block_reason
    return Phase.PENDING, reason, detail


def on_hold_reason(by: Reason, phase: Phase, before: Reason) -> Reason:
    """Return why something is ON_HOLD: because of what just ended, or as before."""
    return by or (before if phase is Phase.ON_HOLD else Reason.FAILED_POISON)


def driver_failure(draft: Draft) -> Reason:
    """Return how the driver that is waiting for its next attempt failed."""
    if draft.exit_reason:
        return draft.exit_reason
    reasons = [query.phase_reason for query in draft.obs.queries if query.phase is Phase.BACKOFF]
    return next((reason for reason in reasons if reason in DRIVER_FAILURES), Reason.DRIVER_DIED)


def _waits_for_others(draft: Draft) -> Because:
    if draft.starting_query:
        return Because(Detail.TURN, {"deaths": draft.deaths, "name": draft.starting_query})
    return Because(Detail.TURN_AFTER_DRIVER, {"deaths": draft.deaths})


def silent(draft: Draft, detail: Detail) -> Because:
    """Return `detail` with the values of a query whose host is silent."""
    return Because(detail, {"host": draft.obs.silent_host})


def lacking_on_host(draft: Draft) -> Because:
    """Return what the host lacks for a driver: code, classes, or capacity used by other drivers."""
    slots = draft.obs.slots
    if draft.waits is Reason.WAITS_CODE:
        return Because(Detail.CODE_COMING)
    if draft.waits is Reason.WAITS_CLASSES and not draft.obs.classes_failed:
        return Because(Detail.CLASSES_COMING)
    if draft.waits is Reason.WAITS_CLASSES:
        return Because(Detail.CLASSES_MISSING, {"why": draft.obs.no_classes})
    if draft.waits is Reason.WAITS_SLOT:
        params = {"starting": slots.starting, "limit": slots.limit}
        return Because(Detail.SLOTS_TAKEN, params)
    needed, used, budget = slots.memory_needed_mb, slots.memory_used_mb, slots.memory_budget_mb
    return Because(Detail.MEMORY_TAKEN, {"needed": needed, "used": used, "budget": budget})
