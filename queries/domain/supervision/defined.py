"""An application with defined queries: each has its own desired state and its own retries."""

from queries.domain.failures.categories import Category
from queries.domain.reasons import NOTHING
from queries.domain.states import (
    DRIVER_FAILURES,
    Desired,
    Phase,
    Reason,
    RestartBlock,
    RunOutcome,
)
from queries.domain.supervision import outcomes
from queries.domain.supervision.decision import Draft, Fault, QueryDraft, RunEnd
from queries.domain.supervision.outcomes import climb
from queries.domain.supervision.phases import LEADS_TO, Named, name_phase


def is_sequential(draft: Draft) -> bool:
    """Return whether queries start one by one, because drivers have died several times in a row."""
    return outcomes.is_sequential(draft)


def blame(draft: Draft) -> None:
    """Put on hold the query that killed the driver, if that is proven."""
    outcomes.blame(draft)


def stopped_by_itself() -> bool:
    """Return False: a defined query that ends without a request has failed."""
    return False


def run_ended(draft: Draft, work: QueryDraft, ended: RunEnd) -> None:
    """Settle the end of a query's run: outcome, failure, next attempt."""
    assert work.run is not None
    current, committed = work.run.generation == work.observed.generation, work.run.committed
    work.ended, work.run = ended, None
    work.completed = ended.outcome is RunOutcome.COMPLETED and current
    if ended.fault is None:
        work.detail = NOTHING
    elif work.observed.desired is Desired.RUNNING and current:
        _climb(draft, work, ended.fault, committed=committed)
    if _needs_another_driver(draft, ended) and not any(work.run for work in draft.queries):
        draft.end_wanted = draft.end_wanted or Reason.REPLACED
    if ended.outcome is RunOutcome.FAILED and draft.obs.failure_scope == "application":
        draft.end_wanted = draft.end_wanted or Reason.FAILURE_SCOPE


def _needs_another_driver(draft: Draft, ended: RunEnd) -> bool:
    """Return whether the query's next run can succeed only in a new driver.

    Only a new process reads secrets, tickets and tokens again, and only a new one releases the lock
    held by a hanging start. While other queries are running in the driver, they take precedence.
    """
    if ended.fault is None:
        return False
    if ended.fault.classified.category is Category.CREDENTIALS:
        return True
    driver, error = draft.obs.driver, ended.fault.error
    status = driver.sighting.status if driver and ended.outcome is RunOutcome.REFUSED else None
    if status is None or error is None:
        return False
    return bool(error.holder_pid) and error.holder_pid == status.jvm_pid


def _climb(draft: Draft, work: QueryDraft, fault: Fault, *, committed: bool) -> None:
    """Count a query's failure, and schedule its next attempt or block its restart."""
    work.failures += 1
    work.refused = bool(fault.error and fault.error.refused)
    rung = climb(
        draft.obs.policy,
        fault,
        failures=work.failures,
        recent=work.observed.recent_failures,
        committed=committed,
        restart_block=work.restart_block,
        key=f"query:{work.observed.id}",
        now=draft.now,
    )
    work.restart_block, work.next_attempt_at, work.detail = (
        rung.restart_block,
        rung.next_attempt_at,
        rung.detail,
    )
    work.restart_block_cause = rung.restart_block_cause


def needs_driver(draft: Draft) -> bool:
    """Return whether any query should have a run now but has none."""
    return any(is_due(draft, work) for work in draft.queries)


def is_due(draft: Draft, work: QueryDraft) -> bool:
    """Return whether the query should have a run now but has none."""
    if work.observed.desired is not Desired.RUNNING or work.run is not None or work.completed:
        return False
    if (
        draft.obs.paused
        or draft.restart_block is RestartBlock.FAILED
        or work.restart_block is RestartBlock.FAILED
    ):
        return False
    if work.restart_block is RestartBlock.ON_HOLD and work.next_attempt_at is None:
        return False
    return work.next_attempt_at is None or work.next_attempt_at <= draft.now


def end_reason(draft: Draft, generation: int) -> Reason:
    """Return why the open driver, launched for a generation, must end; NONE if it continues."""
    if draft.obs.generation > generation:
        return Reason.REPLACED
    if not any(_keeps_driver(draft, work) for work in draft.queries):
        return Reason.NOT_WANTED
    return Reason.NONE


def _keeps_driver(draft: Draft, work: QueryDraft) -> bool:
    """Return whether this query needs the open driver: it is running, is due, or soon will be."""
    if work.observed.desired is not Desired.RUNNING or work.completed:
        return False
    waits_soon = (
        work.restart_block is RestartBlock.NONE and draft.restart_block is not RestartBlock.FAILED
    )
    return work.run is not None or is_due(draft, work) or waits_soon


def open_runs(draft: Draft) -> None:
    """Open a run for each query that is due.

    After several driver deaths in a row, open one at a time.
    """
    draft.is_sequential = outcomes.is_sequential(draft)
    if not draft.is_sequential:
        for work in draft.queries:
            if is_due(draft, work) and not work.hangs:
                work.open_run = _cause(draft, work)
        return
    first = outcomes.next_to_start(draft)
    if first is not None:
        first.open_run = _cause(draft, first)
    starting = first or outcomes.starting_query(draft)
    draft.starting_query = starting.observed.name if starting else ""


def _cause(draft: Draft, work: QueryDraft) -> Reason:
    """Return why a run is opened, based on the query's activity until now."""
    query = work.observed
    if work.restart_block is RestartBlock.ON_HOLD:
        return Reason.PROBE
    if work.ended is not None and work.ended.fault is not None and work.failures:
        return Reason.RETRY_DUE
    fresh = query.generation > query.seen_generation and query.phase is not Phase.STOPPING
    waited = query.phase in {Phase.STOPPING, Phase.PENDING} and not fresh
    if waited and (cause := LEADS_TO.get(query.phase_reason)):
        return cause
    if work.failures:
        return Reason.RETRY_DUE
    if query.reached_generation < query.generation:
        return Reason.ASKED_START
    ended = draft.failures or query.phase_reason in DRIVER_FAILURES
    return Reason.DRIVER_DIED if ended else Reason.REPLACED


def stalled(draft: Draft, work: QueryDraft) -> bool:
    """Return whether a query is being restarted because it has stalled."""
    return draft.obs.policy.restart_on_stall and work.observed.stalled


def reached(draft: Draft) -> bool:
    """Return whether every query that should run does so, in a driver of the newest generation."""
    driver = draft.obs.driver
    if driver is not None and draft.exit is None and driver.generation < draft.obs.generation:
        return False
    wanted = [
        w
        for w in draft.queries
        if w.observed.desired is Desired.RUNNING and w.restart_block is RestartBlock.NONE
    ]
    return all(work.run is not None and work.is_calm for work in wanted)


def name_query(draft: Draft, work: QueryDraft) -> Named:
    """Return a query's phase, its reason and its current activity."""
    return name_phase(draft, work)


def decision(draft: Draft) -> None:
    """Return None: there is no script."""
