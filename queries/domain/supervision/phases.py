"""Name the phase of a query, with its reason and detail."""

from datetime import UTC, datetime, timedelta

from queries.domain.definitions.spec import HOLDING_TRIGGERS
from queries.domain.protocol import Want
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import STOPPED_PHASES, Desired, Hold, Phase, Reason
from queries.domain.supervision.draft import Draft, QueryDraft
from queries.domain.supervision.hanging import about

#: A continuous or real-time query without a result for this long may lack cores.
PROOF_OF_CORES = timedelta(seconds=30)

Named = tuple[Phase, Reason, Because]


def name_phase(draft: Draft, work: QueryDraft) -> Named:
    """Return the phase, its reason and what is going on."""
    if work.run is not None:
        return with_run(draft, work)
    if work.open_run is not None:
        return Phase.STARTING, work.open_run, Because(Detail.GIVEN)
    if work.seen.desired is Desired.STOPPED or work.completed:
        return _at_rest(draft, work)
    return _wanted_without_run(draft, work)


def reached(draft: Draft, work: QueryDraft, phase: Phase) -> bool:
    """Return whether the query has reached its newest generation."""
    if work.completed or work.seen.desired is Desired.STOPPED:
        return phase in STOPPED_PHASES
    current = work.run is not None and work.run.generation == work.seen.generation
    return phase is Phase.RUNNING and current


def with_run(draft: Draft, work: QueryDraft) -> Named:
    """Return the phase of a query that has an open run."""
    run = work.run
    assert run is not None
    if draft.lost:
        return Phase.LOST, Reason.HOST_SILENT, silent(draft, Detail.LOST_ON)
    if work.hangs:
        return Phase.STOPPING, Reason.STUCK, about(draft, work)
    if work.want is not Want.RUN:
        if work.stalled:
            return Phase.STOPPING, Reason.STALLED, Because(Detail.NO_PROGRESS)
        if work.seen.desired is Desired.STOPPED:
            return Phase.STOPPING, Reason.ASKED_STOP, Because(Detail.BATCH_ENDING)
        return Phase.STOPPING, Reason.ASKED_RESTART, Because(Detail.STARTS_AFTER)
    if run.proven_at is not None:
        reason = Reason.COMMITTED if run.committed else Reason.IDLE
        return Phase.RUNNING, reason, NOTHING
    if not draft.driver_ready:
        return Phase.STARTING, Reason.WAITS_DRIVER, Because(Detail.SESSION_STARTING)
    unheard = work.seen.source_unreachable_since
    if unheard is not None:
        since = Because(Detail.SOURCE_SILENT, {"since": f"{unheard:%H:%M:%S}"})
        return Phase.STARTING, Reason.WAITS_SOURCE, since
    if run.status is None or run.status.started_at is None:
        return Phase.STARTING, Reason.WAITS_DRIVER, Because(Detail.QUERY_BUILDING)
    return Phase.STARTING, Reason.WAITS_COMMIT, _unproven(draft, run.trigger, run.status.started_at)


def _unproven(draft: Draft, trigger: str, started_at: str) -> Because:
    """Return what a started query waits for; Spark does not report missing cores."""
    started = datetime.fromisoformat(started_at)
    if trigger in HOLDING_TRIGGERS and draft.now - started >= PROOF_OF_CORES:
        what = "continuous epoch" if trigger == "continuous" else "batch"
        since = started.astimezone(UTC).strftime("%H:%M:%S")
        return Because(Detail.NO_CORES, {"what": what, "since": since})
    return Because(Detail.UNPROVEN)


def _at_rest(draft: Draft, work: QueryDraft) -> Named:
    if work.hangs:
        return Phase.STOPPING, Reason.STUCK, about(draft, work)
    fresh = work.seen.generation > work.seen.seen_generation
    if work.completed or (work.seen.phase is Phase.COMPLETED and not fresh):
        return Phase.COMPLETED, Reason.COMPLETED, Because(Detail.ALL_READ)
    if work.seen.phase is Phase.STOPPED and not fresh and work.ended is None:
        return Phase.STOPPED, work.seen.phase_reason, NOTHING
    return Phase.STOPPED, Reason.STOPPED, NOTHING


def _wanted_without_run(draft: Draft, work: QueryDraft) -> Named:
    if work.hold is Hold.FAILED:
        return Phase.FAILED, Reason.FAILED_FATAL, work.detail
    if work.hold is Hold.BROKEN:
        known = work.ended is None and work.seen.phase_reason is Reason.KILLS_DRIVER
        kills = work.culprit or known
        return Phase.BROKEN, Reason.KILLS_DRIVER if kills else Reason.FAILED_POISON, work.detail
    if draft.hold is Hold.FAILED:
        return Phase.FAILED, Reason.FAILED_FATAL, draft.hold_reason
    if draft.lost:
        return Phase.PENDING, Reason.HOST_SILENT, silent(draft, Detail.WAITS_HOST)
    if draft.obs.paused:
        return Phase.PENDING, Reason.SHUTDOWN, Because(Detail.WITH_INSTALLATION)
    if work.hangs:
        return Phase.PENDING, Reason.WAITS_THREAD, about(draft, work)
    if work.next_attempt_at is not None and work.next_attempt_at > draft.now:
        held = work.refused or (work.ended is None and work.seen.phase_reason is Reason.WAITS_LOCK)
        return Phase.BACKOFF, Reason.WAITS_LOCK if held else Reason.FAILED_RETRY, work.detail
    if draft.next_attempt_at is not None and draft.next_attempt_at > draft.now:
        return Phase.BACKOFF, Reason.DRIVER_DIED, draft.hold_reason
    if draft.waits is not Reason.NONE:
        return Phase.PENDING, draft.waits, taken(draft)
    if draft.one_by_one and draft.driver_open:
        return Phase.PENDING, Reason.WAITS_TURN, _turn(draft)
    # The reason for waiting becomes the cause of its next run.
    asked = work.seen.phase_reason is Reason.ASKED_RESTART
    reason = Reason.ASKED_RESTART if asked else Reason.WAITS_DRIVER
    return Phase.PENDING, reason, Because(Detail.DRIVER_LEAVING)


def _turn(draft: Draft) -> Because:
    if draft.turn:
        return Because(Detail.TURN, {"deaths": draft.failures, "name": draft.turn})
    return Because(Detail.TURN_AFTER_DRIVER, {"deaths": draft.failures})


def silent(draft: Draft, detail: Detail) -> Because:
    """Return that its host is silent, as `detail` says it."""
    return Because(detail, {"host": draft.obs.silent_host})


def taken(draft: Draft) -> Because:
    """Return what of the host other drivers have taken."""
    slots = draft.obs.slots
    if draft.waits is Reason.WAITS_CODE:
        return Because(Detail.CODE_COMING)
    if draft.waits is Reason.WAITS_SLOT:
        params = {"starting": slots.starting, "limit": slots.limit}
        return Because(Detail.SLOTS_TAKEN, params)
    needed, used, budget = slots.memory_needed_mb, slots.memory_used_mb, slots.memory_budget_mb
    return Because(Detail.MEMORY_TAKEN, {"needed": needed, "used": used, "budget": budget})
