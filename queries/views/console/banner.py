"""Problems with the system itself, and lost events, shown on every page."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.template.loader import render_to_string
from django.utils.text import capfirst

from listeners import selectors as heard
from queries.domain.counts import counted
from queries.domain.failures.crash_loops import CrashLoop
from queries.selectors.alerts.incidents import open_incidents
from queries.selectors.console.badges import names_of, open_failure_groups
from queries.selectors.failures.occurrences import crash_loops
from queries.services.system.health import system_health
from queries.views.console.fragments import Changes, Drawn, fragments

#: Older losses are no longer shown in the banner, only on the query's page.
DROPS_SHOWN_FOR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class BannerLine:
    """One line of the banner: its subject, and its problems."""

    tone: str
    items: tuple[tuple[str, str], ...]


def banner(now: datetime) -> list[BannerLine]:
    """Return the lines to show, worst first; empty if everything is fine."""
    health = system_health(now)
    parts = tuple((capfirst(part.name), part.sentence) for part in health.problems)
    lines = [BannerLine("bad", parts)] if parts else []
    if any(part.name == "database" for part in health.problems):
        return lines
    return lines + _crash_loops(now) + _drops(now)


def _crash_loops(now: datetime) -> list[BannerLine]:
    """Return the queries that fail repeatedly: one incident for each, or one for a whole driver."""
    loops = crash_loops(now=now)
    names = names_of(loops)
    together: dict[CrashLoop, list[str]] = defaultdict(list)
    for query, loop in loops.items():
        together[loop].append(names[query])
    items = tuple(
        (
            f"{', '.join(sorted(who))}: crash loop",
            f"{loop.count:,} failures {loop.first_at:%H:%M}–{loop.last_at:%H:%M} UTC. "
            "Still retrying, with backoff.",
        )
        for loop, who in sorted(together.items(), key=lambda pair: pair[0].first_at)
    )
    return [BannerLine("bad", items)] if items else []


def _drops(now: datetime) -> list[BannerLine]:
    """Return how many events Spark dropped, and when, per queue."""
    counted: dict[str, int] = defaultdict(int)
    since: dict[str, datetime] = {}
    until: dict[str, datetime] = {}
    drivers: dict[str, set[int]] = defaultdict(set)
    for drop in heard.drops_since(now - DROPS_SHOWN_FOR):
        queue = drop["queue"]
        counted[queue] += drop["count"]
        drivers[queue].add(drop["driver"])
        since[queue] = min(since.get(queue, drop["since"]), drop["since"])
        until[queue] = max(until.get(queue, drop["until"]), drop["until"])
    return [
        BannerLine(
            "warn",
            (
                (
                    f"{count:,} {_LOST.get(queue, f'events dropped from {queue}')}",
                    f"{since[queue]:%H:%M}–{until[queue]:%H:%M} UTC. "
                    f"{_meaning(queue, drivers[queue])} {_repairs(now, drivers[queue])}",
                ),
            ),
        )
        for queue, count in sorted(counted.items())
    ]


def _meaning(queue: str, drivers: set[int]) -> str:
    driver_telemetry = heard.telemetry(drivers).values()
    if queue == "streams" and any(
        telemetry.heartbeat.mode == "fallback" for telemetry in driver_telemetry
    ):
        return "No private queue is available, so Headgate uses this queue too."
    return _MEANING.get(queue, "")


def _repairs(now: datetime, drivers: set[int]) -> str:
    missing, repaired = heard.holes_since(now - DROPS_SHOWN_FOR, drivers)
    if not missing:
        return "No batches are missing."
    return f"{counted(missing, 'batch,batches')} missing, {repaired:,} of them repaired."


_LOST = {
    "streams": "events dropped from Spark's own listener queue",
    "ours": "Headgate events dropped by Spark's listener bus",
    "outbox": "events dropped: a driver's spool is full",
}
_MEANING = {
    "streams": "Your own listeners missed them; Headgate did not.",
    "outbox": "Free disk space where the drivers write, then check each query's page.",
}


@fragments("system", hears=("system", "driver", "group", "incident"))
def draw_banner(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the banner, and the counts of open failures and incidents in the navigation."""
    context = {"count": open_failure_groups(), "banner": banner(now), "now": now}
    yield "open-failures", render_to_string("console/shell/_open_failures.html", context)
    yield "open-incidents", render_to_string("alerts/_open.html", {"count": open_incidents()})
    yield "system", render_to_string("console/shell/_banner.html", context)
