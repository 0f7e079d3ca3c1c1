"""decide(observation, now): the whole of supervision as one pure function.

It reads as a pipeline over one working copy: settle what has ended, say what is wanted from
now on, name the phases, and say when to look again. Nothing here acts;
`services/reconcile.py` carries the decision out and the promises of `docs/architecture.md`
are its properties.
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
from queries.domain.supervision.decision import (
    Decision,
    DriverAction,
    DriverDecision,
    QueryDecision,
)
from queries.domain.supervision.draft import Plan, Work
from queries.domain.supervision.driver_steps import decide_wants
from queries.domain.supervision.observation import Observation
from queries.domain.supervision.phases import name_phase, reached
from queries.domain.supervision.run_steps import settle_ends

#: How soon to look again while something is under way; nudges make it sooner.
WATCHFUL = timedelta(seconds=1)
#: How soon to look again while everything runs: the certainty behind lost nudges.
CALM = timedelta(seconds=5)


def decide(obs: Observation, now: datetime) -> Decision:
    """Return what is to be done about the application `obs` shows.

    1. Clear the counters of queries whose generation is new.
    2. Settle what has ended: the driver, runs, old failures.
    3. Say what is wanted of the driver and of each run from now on.
    4. Name the phases and the generations reached; say when to look again.
    """
    plan = _begin(obs, now)
    settle_ends(plan)
    decide_wants(plan)
    return _conclude(plan)


def _begin(obs: Observation, now: datetime) -> Plan:
    plan = Plan(
        obs,
        now,
        [],
        obs.failures,
        obs.next_attempt_at,
        obs.hold,
        obs.hold_reason,
        end_wanted=obs.driver.end_wanted if obs.driver else Reason.NONE,
        state=obs.driver.state if obs.driver else None,
    )
    fresh = obs.generation > obs.seen_generation
    for seen in obs.queries:
        work = Work(
            seen, seen.run, seen.failures, seen.next_attempt_at, seen.hold, seen.phase_detail
        )
        if seen.generation > seen.seen_generation:
            work.failures, work.next_attempt_at = 0, None
            work.hold, work.detail = Hold.NONE, NOTHING
            fresh = fresh or seen.desired is Desired.RUNNING
        plan.queries.append(work)
    if fresh:
        plan.failures, plan.next_attempt_at = 0, None
        plan.hold, plan.hold_reason = Hold.NONE, NOTHING
    return plan


def _conclude(plan: Plan) -> Decision:
    queries = tuple(_query_decision(plan, work) for work in plan.queries)
    ended = plan.exit is not None or any(work.ended for work in plan.queries)
    if ended:  # what follows is decided at once; should this worker die first, by the sweep
        plan.wakes.append(plan.now)
    for work in plan.queries:
        if work.run is None and work.open_run is None and work.next_attempt_at is not None:
            plan.wakes.append(work.next_attempt_at)
    if plan.next_attempt_at is not None:
        plan.wakes.append(plan.next_attempt_at)
    if plan.waits is not Reason.NONE:
        plan.wakes.append(plan.now + WATCHFUL)
    if plan.driver_open or plan.lost:
        acts = plan.action is not DriverAction.NOTHING
        live = plan.state is DriverState.LIVE and not acts
        calm = live and all(_calm(work) for work in plan.queries)
        plan.wakes.append(plan.now + (CALM if calm else WATCHFUL))
    settled = plan.obs.generation if _application_reached(plan) else plan.obs.reached_generation
    return Decision(
        driver=DriverDecision(plan.action, plan.state, plan.end_wanted, plan.exit, plan.fault),
        queries=queries,
        failures=plan.failures,
        next_attempt_at=plan.next_attempt_at,
        hold=plan.hold,
        hold_reason=plan.hold_reason,
        seen_generation=plan.obs.generation,
        reached_generation=settled,
        wake_at=max(plan.now, min(plan.wakes)) if plan.wakes else None,
        again=ended,
    )


def _calm(work: Work) -> bool:
    proven = work.run is not None and work.run.proven_at is not None and work.want is Want.RUN
    return proven or (work.run is None and work.open_run is None and work.ended is None)


def _application_reached(plan: Plan) -> bool:
    driver = plan.obs.driver
    if driver is not None and plan.exit is None and driver.generation < plan.obs.generation:
        return False
    wanted = [w for w in plan.queries if w.seen.desired is Desired.RUNNING and w.hold is Hold.NONE]
    return all(work.run is not None and _calm(work) for work in wanted)


def _query_decision(plan: Plan, work: Work) -> QueryDecision:
    phase, reason, detail = name_phase(plan, work)
    seen = work.seen
    done = reached(plan, work, phase)
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
