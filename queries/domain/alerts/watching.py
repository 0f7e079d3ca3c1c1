"""Decide when the watcher reports problems with Headgate itself, without false alarms.

The watcher monitors the worker, its ticks, Redis and the database from outside, and reports
problems that they cannot report themselves: see decisions/0015.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from queries.domain.alerts.kinds import IncidentKind, NotificationStep


class Look(StrEnum):
    """The result of one check of a part."""

    WELL = "well"
    TROUBLE = "trouble"
    UNKNOWN = "unknown"  # hidden by another part's problem


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The state of one part at a check, with a sentence for users."""

    part: str
    look: Look
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class ProblemWatch:
    """What is remembered about a part that has a problem."""

    since: datetime  # first seen
    sentence: str
    reported_at: datetime | None = None  # when the problem was reported; None: not yet
    reminded_at: datetime | None = None
    well_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Saying:
    """One message to send: the part, and which of its problems (identified by when it began)."""

    part: str
    step: NotificationStep
    since: datetime
    sentence: str


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a problem and a recovery must last to be reported, and when to repeat a report."""

    trouble: timedelta = timedelta(seconds=45)  # a restarted worker is back within this time
    calm: timedelta = timedelta(seconds=60)
    remind: timedelta = timedelta(hours=4)


#: Parts needed for incidents and their delivery: if one has a problem, only the watcher can report
#: it.
PATH = ("database", "redis", "worker", "ticks")
#: Parts that the watcher reports on, with the incident kind for each.
KINDS: Mapping[str, IncidentKind] = {
    "web": IncidentKind.WEB_DOWN,
    "database": IncidentKind.DATABASE_DOWN,
    "redis": IncidentKind.REDIS_DOWN,
    "worker": IncidentKind.WORKER_DOWN,
    "ticks": IncidentKind.TICKS_LATE,
    "ingester": IncidentKind.INGESTER_DOWN,
    "disk": IncidentKind.DISK,
}
#: Parts that get ordinary incidents while every part of `PATH` works.
REPORTED_AS_INCIDENTS = ("ingester", "disk")


def due_reports(
    watched: Mapping[str, ProblemWatch],
    checks: Iterable[SelfCheck],
    *,
    now: datetime,
    patience: Patience,
) -> tuple[dict[str, ProblemWatch], list[Saying]]:
    """Return what to remember after a check, and what to report now.

    `seen` may contain parts that the watcher does not report on; they are ignored.
    """
    looks = {check.part: check for check in checks if check.part in KINDS}
    broken = any(looks[part].look is Look.TROUBLE for part in PATH if part in looks)
    after: dict[str, ProblemWatch] = {}
    sayings: list[Saying] = []
    for part in KINDS:
        before = watched.get(part)
        check = looks.get(part, SelfCheck(part, Look.UNKNOWN))
        if before is None and part in REPORTED_AS_INCIDENTS and not broken:
            continue
        watch, saying = _judge(before, check, now, patience)
        if watch is not None:
            after[part] = watch
        if saying is not None:
            sayings.append(saying)
    return after, sayings


def _judge(
    before: ProblemWatch | None, check: SelfCheck, now: datetime, patience: Patience
) -> tuple[ProblemWatch | None, Saying | None]:
    if check.look is Look.UNKNOWN:
        return before, None
    if check.look is Look.TROUBLE:
        watch = replace(before or ProblemWatch(now, ""), sentence=check.sentence, well_since=None)
        return _in_trouble(watch, check.part, now, patience)
    if before is None or before.reported_at is None:
        return None, None
    well_since = before.well_since or now
    if now - well_since < patience.calm:
        return replace(before, well_since=well_since), None
    return None, Saying(check.part, NotificationStep.RESOLVED, before.since, check.sentence)


def _in_trouble(
    watch: ProblemWatch, part: str, now: datetime, patience: Patience
) -> tuple[ProblemWatch, Saying | None]:
    if watch.reported_at is None:
        if now - watch.since < patience.trouble:
            return watch, None
        reported = replace(watch, reported_at=now)
        return reported, Saying(part, NotificationStep.OPENED, watch.since, watch.sentence)
    if now - (watch.reminded_at or watch.reported_at) < patience.remind:
        return watch, None
    reminded = replace(watch, reminded_at=now)
    return reminded, Saying(part, NotificationStep.REMINDER, watch.since, watch.sentence)


def drop_unreported(watched: Mapping[str, ProblemWatch]) -> dict[str, ProblemWatch]:
    """Return the state with which a restarted watcher continues.

    Problems that have not been reported yet are dropped, because they began before the restart: the
    restarted watcher first makes its own checks.
    """
    return {part: watch for part, watch in watched.items() if watch.reported_at is not None}
