"""decide(observation, now): all of supervision as one pure function.

It is a pipeline over one draft: settle what has ended, decide what the driver and the runs should
do now, determine the phases, and choose when to look again. Nothing here has side effects;
`services/supervision/reconcile.py` executes the decision. The invariants in `docs/architecture.md`
are properties of this function.
"""

from datetime import datetime, timedelta

from queries.domain.reasons import NOTHING
from queries.domain.states import (
    Desired,
    DriverState,
    Reason,
    RestartBlock,
)
from queries.domain.supervision import defined, script
from queries.domain.supervision.decision import (
    Decision,
    Draft,
    DriverAction,
    DriverDecision,
    QueryDecision,
    QueryDraft,
)
from queries.domain.supervision.halves import decide_wants, settle_ends
from queries.domain.supervision.observation import Observation
from queries.domain.supervision.phases import reached

#: How soon to look again while something is under way; nudges make it sooner.
WATCHFUL = timedelta(seconds=1)
#: How soon to look again while everything is running, in case nudges are lost.
CALM = timedelta(seconds=5)


def decide(obs: Observation, now: datetime) -> Decision:
    """Return what to do about the application described by `obs`.

    1. Clear the counters of queries that have a new generation.
    2. Settle what has ended: the driver, runs, old failures.
    3. Decide what the driver and each run should do from now on.
    4. Determine the phases and the generations reached; choose when to look again.
    """
    draft = _begin(obs, now)
    settle_ends(draft)
    decide_wants(draft)
    return _conclude(draft)


def _begin(obs: Observation, now: datetime) -> Draft:
    draft = Draft(
        obs,
        defined if obs.script is None else script,
        now,
        [],
        obs.failures,
        obs.next_attempt_at,
        obs.restart_block,
        obs.restart_block_reason,
        deaths=obs.deaths,
        end_wanted=obs.driver.end_wanted if obs.driver else Reason.NONE,
        state=obs.driver.state if obs.driver else None,
        lost=bool(obs.silent_host),
    )
    fresh = obs.generation > obs.seen_generation
    for query in obs.queries:
        work = QueryDraft(
            query,
            query.run,
            query.failures,
            query.next_attempt_at,
            query.restart_block,
            query.phase_detail,
        )
        if query.generation > query.seen_generation:
            work.failures, work.next_attempt_at = 0, None
            work.restart_block, work.detail = RestartBlock.NONE, NOTHING
            fresh = fresh or query.desired is Desired.RUNNING
        draft.queries.append(work)
    if fresh:
        draft.failures, draft.deaths, draft.next_attempt_at = 0, 0, None
        draft.restart_block, draft.restart_block_reason = RestartBlock.NONE, NOTHING
    return draft


def _conclude(draft: Draft) -> Decision:
    queries = tuple(_query_decision(draft, work) for work in draft.queries)
    ended = draft.exit is not None or any(work.ended for work in draft.queries)
    if ended:  # the rest is decided immediately, or by the sweep if this worker dies first
        draft.wakes.append(draft.now)
    for work in draft.queries:
        if work.run is None and work.open_run is None and work.next_attempt_at is not None:
            draft.wakes.append(work.next_attempt_at)
    if draft.next_attempt_at is not None:
        draft.wakes.append(draft.next_attempt_at)
    if draft.waits is not Reason.NONE:
        draft.wakes.append(draft.now + WATCHFUL)
    if draft.lost and draft.obs.driver is None:
        if any(draft.subject.is_due(draft, work) for work in draft.queries):
            draft.wakes.append(draft.now + CALM)
    elif draft.driver_open:
        acts = draft.action is not DriverAction.NOTHING
        live = draft.state is DriverState.LIVE and not acts
        queue = any(
            draft.subject.is_due(draft, work) and work.open_run is None for work in draft.queries
        )
        calm = live and not queue and all(work.is_calm for work in draft.queries)
        draft.wakes.append(draft.now + (CALM if calm else WATCHFUL))
    settled = draft.obs.generation if draft.subject.reached(draft) else draft.obs.reached_generation
    return Decision(
        driver=DriverDecision(
            draft.action,
            draft.state,
            draft.end_wanted,
            draft.exit,
            draft.fault,
            draft.exit_reason or draft.end_wanted,
            draft.progress,
        ),
        queries=queries,
        failures=draft.failures,
        next_attempt_at=draft.next_attempt_at,
        restart_block=draft.restart_block,
        restart_block_reason=draft.restart_block_reason,
        seen_generation=draft.obs.generation,
        reached_generation=settled,
        script=draft.subject.decision(draft),
        wake_at=max(draft.now, min(draft.wakes)) if draft.wakes else None,
        again=ended,
        busy=bool(draft.busy),
    )


def _query_decision(draft: Draft, work: QueryDraft) -> QueryDecision:
    phase, reason, detail = draft.subject.name_query(draft, work)
    query = work.observed
    done = reached(draft, work, phase)
    return QueryDecision(
        query=query.id,
        phase=phase,
        reason=reason,
        detail=detail,
        failures=work.failures,
        next_attempt_at=work.next_attempt_at,
        restart_block=work.restart_block,
        seen_generation=query.generation,
        reached_generation=query.generation if done else query.reached_generation,
        ended=work.ended,
        completed=work.completed,
        open_run=work.open_run,
        want=work.want,
        deadline=work.deadline,
    )
