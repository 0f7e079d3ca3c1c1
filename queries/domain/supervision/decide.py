"""decide(observation, now): the whole of supervision as one pure function.

It is a pipeline over one draft: settle what has ended, decide what the driver and the runs
should do now, name the phases, and say when to look again. Nothing here acts;
`services/supervision/reconcile.py` carries the decision out. The invariants in
`docs/architecture.md` are its properties.
"""

from datetime import datetime, timedelta

from queries.domain.protocol import Want
from queries.domain.reasons import NOTHING
from queries.domain.states import (
    Desired,
    DriverState,
    Hold,
    Reason,
)
from queries.domain.supervision import script
from queries.domain.supervision.decision import (
    Decision,
    DriverAction,
    DriverDecision,
    QueryDecision,
)
from queries.domain.supervision.draft import Draft, QueryDraft
from queries.domain.supervision.ended import settle_ends
from queries.domain.supervision.observation import Observation
from queries.domain.supervision.phases import name_phase, reached
from queries.domain.supervision.wanted import decide_wants

#: How soon to look again while something is under way; nudges make it sooner.
WATCHFUL = timedelta(seconds=1)
#: How soon to look again while everything runs, in case nudges are lost.
CALM = timedelta(seconds=5)


def decide(obs: Observation, now: datetime) -> Decision:
    """Return what to do about the application that `obs` shows.

    1. Clear the counters of queries whose generation is new.
    2. Settle what has ended: the driver, runs, old failures.
    3. Say what is wanted of the driver and of each run from now on.
    4. Name the phases and the generations reached; say when to look again.
    """
    draft = _begin(obs, now)
    settle_ends(draft)
    decide_wants(draft)
    return _conclude(draft)


def _begin(obs: Observation, now: datetime) -> Draft:
    draft = Draft(
        obs,
        now,
        [],
        obs.failures,
        obs.next_attempt_at,
        obs.hold,
        obs.hold_reason,
        end_wanted=obs.driver.end_wanted if obs.driver else Reason.NONE,
        state=obs.driver.state if obs.driver else None,
        lost=bool(obs.silent_host),
    )
    fresh = obs.generation > obs.seen_generation
    for seen in obs.queries:
        work = QueryDraft(
            seen, seen.run, seen.failures, seen.next_attempt_at, seen.hold, seen.phase_detail
        )
        if seen.generation > seen.seen_generation:
            work.failures, work.next_attempt_at = 0, None
            work.hold, work.detail = Hold.NONE, NOTHING
            fresh = fresh or seen.desired is Desired.RUNNING
        draft.queries.append(work)
    if fresh:
        draft.failures, draft.next_attempt_at = 0, None
        draft.hold, draft.hold_reason = Hold.NONE, NOTHING
    return draft


def _conclude(draft: Draft) -> Decision:
    queries = tuple(_query_decision(draft, work) for work in draft.queries)
    ended = draft.exit is not None or any(work.ended for work in draft.queries)
    if ended:  # what follows is decided at once, or by the sweep if this worker dies first
        draft.wakes.append(draft.now)
    for work in draft.queries:
        if work.run is None and work.open_run is None and work.next_attempt_at is not None:
            draft.wakes.append(work.next_attempt_at)
    if draft.next_attempt_at is not None:
        draft.wakes.append(draft.next_attempt_at)
    if draft.waits is not Reason.NONE:
        draft.wakes.append(draft.now + WATCHFUL)
    if draft.lost and draft.obs.driver is None:
        if any(draft.due(work) for work in draft.queries):
            draft.wakes.append(draft.now + CALM)
    elif draft.driver_open:
        acts = draft.action is not DriverAction.NOTHING
        live = draft.state is DriverState.LIVE and not acts
        queue = any(draft.due(work) and work.open_run is None for work in draft.queries)
        calm = live and not queue and all(_calm(work) for work in draft.queries)
        draft.wakes.append(draft.now + (CALM if calm else WATCHFUL))
    settled = draft.obs.generation if _application_reached(draft) else draft.obs.reached_generation
    return Decision(
        driver=DriverDecision(draft.action, draft.state, draft.end_wanted, draft.exit, draft.fault),
        queries=queries,
        failures=draft.failures,
        next_attempt_at=draft.next_attempt_at,
        hold=draft.hold,
        hold_reason=draft.hold_reason,
        seen_generation=draft.obs.generation,
        reached_generation=settled,
        script=script.decision(draft),
        wake_at=max(draft.now, min(draft.wakes)) if draft.wakes else None,
        again=ended,
    )


def _calm(work: QueryDraft) -> bool:
    proven = work.run is not None and work.run.proven_at is not None and work.want is Want.RUN
    return proven or (work.run is None and work.open_run is None and work.ended is None)


def _application_reached(draft: Draft) -> bool:
    if draft.obs.script is not None:
        return script.reached(draft)
    driver = draft.obs.driver
    if driver is not None and draft.exit is None and driver.generation < draft.obs.generation:
        return False
    wanted = [w for w in draft.queries if w.seen.desired is Desired.RUNNING and w.hold is Hold.NONE]
    return all(work.run is not None and _calm(work) for work in wanted)


def _query_decision(draft: Draft, work: QueryDraft) -> QueryDecision:
    name = name_phase if draft.obs.script is None else script.name_query
    phase, reason, detail = name(draft, work)
    seen = work.seen
    done = reached(draft, work, phase)
    return QueryDecision(
        query=seen.id,
        phase=phase,
        reason=reason,
        detail=detail,
        failures=work.failures,
        next_attempt_at=work.next_attempt_at,
        hold=work.hold,
        seen_generation=seen.generation,
        reached_generation=seen.generation if done else seen.reached_generation,
        ended=work.ended,
        completed=work.completed,
        open_run=work.open_run,
        want=work.want,
        deadline=work.deadline,
    )
