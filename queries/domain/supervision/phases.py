"""The phase of a query, with its reason: what the pages call a state is named here alone."""

from datetime import UTC, datetime, timedelta

from queries.domain.protocol import Want
from queries.domain.states import STOPPED_PHASES, Desired, Hold, Phase, Reason
from queries.domain.supervision.draft import Plan, Work
from queries.domain.triggers.cores import HOLDING

#: A continuous or real-time query that shows nothing for so long is asked for its cores.
PROOF_OF_CORES = timedelta(seconds=30)

Named = tuple[Phase, Reason, str]


def name_phase(plan: Plan, work: Work) -> Named:
    """Return phase, reason and the sentence beside it."""
    if work.run is not None:
        return _with_run(plan, work)
    if work.open_run is not None:
        return Phase.STARTING, work.open_run, "A driver has been given the query."
    if work.seen.desired is Desired.STOPPED or work.completed:
        return _at_rest(work)
    return _wanted_without_run(plan, work)


def reached(plan: Plan, work: Work, phase: Phase) -> bool:
    """Return whether what was last asked of the query has come true."""
    if work.completed or work.seen.desired is Desired.STOPPED:
        return phase in STOPPED_PHASES
    current = work.run is not None and work.run.generation == work.seen.generation
    return phase is Phase.RUNNING and current


def _with_run(plan: Plan, work: Work) -> Named:
    run = work.run
    assert run is not None
    if plan.lost:
        return Phase.LOST, Reason.HOST_SILENT, "Its host does not answer; it may still run."
    if work.want is not Want.RUN:
        if work.stuck:
            text = "The stop hangs. Restarting the application ends it, and its neighbours too."
            return Phase.STOPPING, Reason.STUCK, text
        if work.stalled:
            return Phase.STOPPING, Reason.STALLED, "It made no progress; it starts again."
        if work.seen.desired is Desired.STOPPED:
            return Phase.STOPPING, Reason.ASKED_STOP, "The batch in flight is being ended."
        return Phase.STOPPING, Reason.ASKED_RESTART, "It starts again when it has ended."
    if run.proven_at is not None:
        reason = Reason.COMMITTED if run.committed else Reason.IDLE
        return Phase.RUNNING, reason, ""
    if not plan.driver_ready:
        return Phase.STARTING, Reason.WAITS_DRIVER, "Its driver's Spark session is starting."
    silent = work.seen.source_unreachable_since
    if silent is not None:
        text = (
            f"Source not reachable since {silent:%H:%M:%S} UTC. Spark waits without a word; "
            "it goes on by itself once the source answers."
        )
        return Phase.STARTING, Reason.WAITS_SOURCE, text
    if run.status is None or run.status.started_at is None:
        return Phase.STARTING, Reason.WAITS_DRIVER, "Spark is building the query."
    return Phase.STARTING, Reason.WAITS_COMMIT, _unproven(plan, run.trigger, run.status.started_at)


def _unproven(plan: Plan, trigger: str, started_at: str) -> str:
    """Say what a started query has not shown yet; Spark says nothing of missing cores."""
    started = datetime.fromisoformat(started_at)
    if trigger in HOLDING and plan.now - started >= PROOF_OF_CORES:
        what = "epoch" if trigger == "continuous" else "batch"
        since = started.astimezone(UTC).strftime("%H:%M:%S")
        return f"No {what} since {since} UTC: has it a core per source partition?"
    return "Spark has started it; no batch has committed and no idle trigger was seen yet."


def _at_rest(work: Work) -> Named:
    fresh = work.seen.generation > work.seen.seen_generation
    if work.completed or (work.seen.phase is Phase.COMPLETED and not fresh):
        return Phase.COMPLETED, Reason.COMPLETED, "It has read all there was."
    if work.seen.phase is Phase.STOPPED and not fresh and work.ended is None:
        return Phase.STOPPED, Reason(work.seen.phase_reason), ""
    return Phase.STOPPED, Reason.STOPPED, ""


def _wanted_without_run(plan: Plan, work: Work) -> Named:
    if work.hold is Hold.FAILED:
        return Phase.FAILED, Reason.FAILED_FATAL, work.detail
    if work.hold is Hold.BROKEN:
        return Phase.BROKEN, Reason.FAILED_POISON, work.detail
    if plan.hold is Hold.FAILED:
        return Phase.FAILED, Reason.FAILED_FATAL, plan.hold_reason
    if plan.obs.paused:
        return Phase.PENDING, Reason.SHUTDOWN, "It starts with the installation."
    if work.next_attempt_at is not None and work.next_attempt_at > plan.now:
        held = work.refused or (work.ended is None and work.seen.phase_reason == Reason.WAITS_LOCK)
        return Phase.BACKOFF, Reason.WAITS_LOCK if held else Reason.FAILED_RETRY, work.detail
    if plan.next_attempt_at is not None and plan.next_attempt_at > plan.now:
        return Phase.BACKOFF, Reason.DRIVER_DIED, plan.hold_reason
    if plan.waits is not Reason.NONE:
        slots = plan.obs.slots
        if plan.waits is Reason.WAITS_SLOT:
            text = f"{slots.starting} of {slots.limit} drivers are starting on this host."
        else:
            text = (
                f"It needs {slots.memory_needed_mb} MB; {slots.memory_used_mb} of "
                f"{slots.memory_budget_mb} MB are taken by other drivers."
            )
        return Phase.PENDING, plan.waits, text
    # Why it waits is remembered as the cause of its next run.
    asked = work.seen.phase_reason == Reason.ASKED_RESTART
    reason = Reason.ASKED_RESTART if asked else Reason.WAITS_DRIVER
    return Phase.PENDING, reason, "The driver before it is leaving."
