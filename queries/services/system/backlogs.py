"""Check the bulk work on rows: how far behind it is, and what it skips."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db import DatabaseError

from headgate_ground.masking import mask_text
from queries.domain.counts import counted
from queries.domain.system import Part, clock, first_line, ok, problem

if TYPE_CHECKING:
    from listeners.loops.backlogs import Backlog
    from listeners.loops.troubles import SkippedRow


def backlog(now: datetime) -> Part:
    """Check the part "backlog"."""
    from listeners.loops.backlogs import backlogs

    try:
        current_backlogs = backlogs()
    except DatabaseError as error:
        return problem("backlog", f"The backlog cannot be read: {first_line(error)}")
    return backlog_part(current_backlogs, now)


def backlog_part(current_backlogs: "list[Backlog]", now: datetime) -> Part:
    """Check how far behind the bulk work is: the number of rows, and the age of the oldest."""
    behind = [backlog for backlog in current_backlogs if backlog.rows and backlog.since is not None]
    summary = "; ".join(_behind(backlog, now) for backlog in behind)
    late = [
        backlog
        for backlog in behind
        if backlog.since is not None and now - backlog.since > backlog.late_after
    ]
    stuck = [
        backlog
        for backlog in current_backlogs
        if backlog.ran_at and now - backlog.ran_at > backlog.silent_after
    ]
    if late:
        since = min(backlog.since for backlog in late if backlog.since is not None)
        return problem("backlog", f"{_capital(summary)}. It is processed in slices.", since)
    if stuck:
        oldest = min(backlog.ran_at for backlog in stuck if backlog.ran_at is not None)
        names = ", ".join(backlog.title for backlog in stuck)
        return problem("backlog", f"No run of {names} has finished since {clock(oldest)}.", oldest)
    return ok("backlog", f"{_capital(summary)}." if summary else "No background work is behind.")


def _behind(job: "Backlog", now: datetime) -> str:
    noun = "batch,batches" if job.unit == "batch" else job.unit
    assert job.since is not None, "only such are told"
    return f"{job.title}: {counted(job.rows, noun)} behind, the oldest by {_span(now - job.since)}"


def loops(now: datetime) -> Part:
    """Check the part "loops"."""
    from listeners.loops.troubles import current, of_drivers

    try:
        skipped = [*current(now), *of_drivers(now)]
    except DatabaseError as error:
        return problem("loops", f"The list of skipped objects cannot be read: {first_line(error)}")
    return loops_part(skipped)


def loops_part(skipped: "list[SkippedRow]") -> Part:
    """Check for elements that loops skip while they process the others."""
    if not skipped:
        return ok("loops", "Nothing is skipped.")
    first = min(skipped, key=lambda element: element.since)
    more = f" And {len(skipped) - 1:,} more." if len(skipped) > 1 else ""
    times = "once" if first.times == 1 else f"{first.times:,} times"
    return problem(
        "loops",
        f"{_capital(first.loop)}: {first.about} "
        f"{'is set aside' if first.set_aside else 'fails'}, {times} since "
        f"{clock(first.since)}: {mask_text(first.cause)}.{more} Everything else is processed.",
        first.since,
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _span(passed: timedelta) -> str:
    """Return a duration with its unit, rounded down: "45 s", "14 min", "3 h", "2 days"."""
    seconds = max(0, int(passed.total_seconds()))
    for most, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < most:
            return f"{seconds // unit:,} {name}"
    return f"{seconds // 86_400:,} days"
