"""Distinguish slow from stuck, at a start and at an end, and how to end hanging parts.

A start makes progress while its driver reports new steps, or while its processes use processor
time. The steps are the driver's own report, and an application's code can use processor time on
purpose, so no start may take longer than `Limits.start_max_s`.

A hanging part keeps its checkpoint locked (`queries.domain.restart`): the query does not count as
stopped, and does not start again in that driver. The part ends on its own, or with the driver's
process.
"""

from datetime import datetime, timedelta

from queries.domain.protocol import Hangs
from queries.domain.reasons import Because, Detail
from queries.domain.states import Desired, Phase, Reason
from queries.domain.supervision.decision import Draft, QueryDraft
from queries.domain.supervision.observation import DriverSeen, Limits, StartMark

#: Seconds of processor time, by all of a driver's processes, that count as progress. Loading
#: classes for a Spark session takes about 15 s; a JVM that only waits uses 2 s in some minutes.
LEAST_CPU_S = 2.0
#: Characters of a step that are recorded: a driver's own code can report anything.
STEP_LENGTH = 40


def advanced(driver: DriverSeen, now: datetime) -> StartMark:
    """Return how far a driver has come: a new mark if it advanced since the last, or the last."""
    mark = driver.progress or StartMark(driver.created_at)
    sighting = driver.sighting
    step = mark.step if sighting.status is None else str(sighting.status.step)[:STEP_LENGTH]
    cpu_s = mark.cpu_s if sighting.cpu_s is None else sighting.cpu_s
    if step == mark.step and cpu_s < mark.cpu_s + LEAST_CPU_S:
        return mark
    return StartMark(now, cpu_s, step)


def is_stuck(*, began_at: datetime, advanced_at: datetime, limits: Limits, now: datetime) -> bool:
    """Return whether a start has not advanced for its limit, or has taken its maximum."""
    stuck = now - max(began_at, advanced_at) > timedelta(seconds=limits.start_s)
    return stuck or has_taken_longest(began_at, limits, now)


def waits_for_start(phase: Phase, reason: Reason, *, busy: bool) -> bool:
    """Return whether a query or script waits for a start that times out when it is stuck.

    Whatever waits for the same must not give up earlier. On a busy host, a first batch takes long.
    """
    if phase is Phase.STARTING:
        return reason is Reason.WAITS_DRIVER or (busy and reason is Reason.WAITS_COMMIT)
    timed_out_start = (
        Phase.STOPPING,
        Reason.START_TIMED_OUT,
    )  # its failure is recorded with its end
    return (phase, reason) in {(Phase.PENDING, Reason.WAITS_SLOT), timed_out_start}


def has_taken_longest(began_at: datetime, limits: Limits, now: datetime) -> bool:
    """Return whether a start has taken its maximum, which ends it even while it advances."""
    return now - began_at > timedelta(seconds=limits.start_max_s)


def note_hanging(draft: Draft) -> None:
    """Note what hangs, and end the driver if nothing else is running in it.

    If something else is running, the driver continues: an operator decides whether the other
    queries restart too.
    """
    if draft.obs.driver is None or draft.exit is not None or draft.lost:
        return
    for work in draft.queries:
        work.hangs = work.observed.hangs or (Hangs.STOP if _is_late(draft, work) else Hangs.NOTHING)
    alone = not any(work.run is not None and not work.hangs for work in draft.queries)
    if alone and any(work.hangs for work in draft.queries):
        draft.end_wanted = draft.end_wanted or Reason.HANGS


def nothing_else_runs(draft: Draft) -> bool:
    """Return whether none of the remaining parts in the driver will end on its own."""
    open_runs = [work for work in draft.queries if work.run is not None]
    return bool(open_runs) and all(work.hangs for work in open_runs)


def stop_deadline(draft: Draft, work: QueryDraft) -> datetime:
    """Return the deadline for the batch in flight of a run that should end."""
    run, query = work.run, work.observed
    assert run is not None
    stop_requested = query.desired is Desired.STOPPED or run.generation < query.generation
    until = query.stop_deadline if stop_requested else None
    since = run.stop_asked_at or draft.now
    return until or since + timedelta(seconds=draft.obs.limits.stop_s)


def about(draft: Draft, work: QueryDraft) -> Because:
    """Return what hangs, and which queries would be affected by ending it."""
    if draft.end_wanted:
        return Because(Detail.HANG_ENDING)
    others = [
        other.observed.name
        for other in draft.queries
        if other is not work and other.run is not None
    ]
    named = ", ".join(others[:-1]) + " and " + others[-1] if others[1:] else "".join(others)
    code = Detail.START_HANGS if work.hangs is Hangs.START else Detail.STOP_TIMED_OUT
    return Because(code, {"others": named})


def _is_late(draft: Draft, work: QueryDraft) -> bool:
    """Return whether a stop takes too long although its driver does not report that it hangs."""
    if work.run is None or work.run.stop_asked_at is None:
        return False
    leave = timedelta(seconds=draft.obs.limits.leave_s)
    return draft.now > stop_deadline(draft, work) + leave
