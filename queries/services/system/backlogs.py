"""Check the bulk work on rows: how far behind it is, and what it skips."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db import DatabaseError

from headgate_ground.masking import mask_text
from queries.domain.counts import counted
from queries.domain.system import Part, clock, first_line, ok, problem

if TYPE_CHECKING:
    from listeners.loops.backlogs import Backlog
    from listeners.loops.troubles import Shown


def backlog(now: datetime) -> Part:
    """Check the part "backlog"."""
    from listeners.loops.backlogs import backlogs

    try:
        found = backlogs()
    except DatabaseError as error:
        return problem("backlog", f"The backlog cannot be read: {first_line(error)}")
    return backlog_part(found, now)


def backlog_part(found: "list[Backlog]", now: datetime) -> Part:
    """Check how far behind the bulk work is: the number of rows, and the age of the oldest."""
    behind = [one for one in found if one.rows and one.since is not None]
    told = "; ".join(_behind(one, now) for one in behind)
    late = [one for one in behind if one.since is not None and now - one.since > one.late_after]
    stuck = [one for one in found if one.ran_at and now - one.ran_at > one.silent_after]
    if late:
        since = min(one.since for one in late if one.since is not None)
        return problem("backlog", f"{_capital(told)}. It is processed in slices.", since)
    if stuck:
        oldest = min(one.ran_at for one in stuck if one.ran_at is not None)
        names = ", ".join(one.title for one in stuck)
        return problem("backlog", f"No run of {names} has finished since {clock(oldest)}.", oldest)
    return ok("backlog", f"{_capital(told)}." if told else "No background work is behind.")


def _behind(one: "Backlog", now: datetime) -> str:
    noun = "batch,batches" if one.unit == "batch" else one.unit
    assert one.since is not None, "only such are told"
    return f"{one.title}: {counted(one.rows, noun)} behind, the oldest by {_span(now - one.since)}"


def loops(now: datetime) -> Part:
    """Check the part "loops"."""
    from listeners.loops.troubles import current, of_drivers

    try:
        found = [*current(now), *of_drivers(now)]
    except DatabaseError as error:
        return problem("loops", f"The list of skipped objects cannot be read: {first_line(error)}")
    return loops_part(found)


def loops_part(found: "list[Shown]") -> Part:
    """Check for elements that loops skip while they process the others."""
    if not found:
        return ok("loops", "Nothing is skipped.")
    first = min(found, key=lambda one: one.since)
    more = f" And {len(found) - 1:,} more." if len(found) > 1 else ""
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
