"""Parts of a query that do not end in its driver although they should, and how they are ended.

A hanging part keeps its checkpoint locked (`queries.domain.run_end`): the query does not count as
stopped, and does not start again in that driver. The part ends on its own, or with the driver's
process.
"""

from datetime import datetime, timedelta

from queries.domain.protocol import Hangs
from queries.domain.reasons import Because, Detail
from queries.domain.states import Desired, Reason
from queries.domain.supervision.draft import Draft, QueryDraft


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
    """Return whether nothing that is left in the driver ends on its own."""
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
