"""Decide when the watcher reports problems with Headgate itself, without false alarms.

The watcher monitors the worker, its ticks, Redis and the database from outside, and reports
problems that they cannot report themselves: see decisions/0015.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from queries.domain.alerts.kinds import IncidentKind, Step


class Look(StrEnum):
    """The result of one check of a part."""

    WELL = "well"
    TROUBLE = "trouble"
    UNKNOWN = "unknown"  # hidden by another part's problem


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of one part at a check, with a sentence for users."""

    part: str
    look: Look
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Watch:
    """What is remembered about a part that has a problem."""

    since: datetime  # first seen
    sentence: str
    told_at: datetime | None = None  # when the problem was reported; None: not yet
    reminded_at: datetime | None = None
    well_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Saying:
    """One message to send: the part, and which of its problems (identified by when it began)."""

    part: str
    step: Step
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
TOLD_BY_INCIDENTS = ("ingester", "disk")


def to_tell(
    watched: Mapping[str, Watch],
    seen: Iterable[Seen],
    *,
    now: datetime,
    patience: Patience,
) -> tuple[dict[str, Watch], list[Saying]]:
    """Return what to remember after a check, and what to report now.

    `seen` may contain parts that the watcher does not report on; they are ignored.
    """
    looks = {one.part: one for one in seen if one.part in KINDS}
    broken = any(looks[part].look is Look.TROUBLE for part in PATH if part in looks)
    after: dict[str, Watch] = {}
    sayings: list[Saying] = []
    for part in KINDS:
        before = watched.get(part)
        one = looks.get(part, Seen(part, Look.UNKNOWN))
        if before is None and part in TOLD_BY_INCIDENTS and not broken:
            continue
        kept, saying = _judge(before, one, now, patience)
        if kept is not None:
            after[part] = kept
        if saying is not None:
            sayings.append(saying)
    return after, sayings


def _judge(
    before: Watch | None, seen: Seen, now: datetime, patience: Patience
) -> tuple[Watch | None, Saying | None]:
    if seen.look is Look.UNKNOWN:
        return before, None
    if seen.look is Look.TROUBLE:
        watch = replace(before or Watch(now, ""), sentence=seen.sentence, well_since=None)
        return _in_trouble(watch, seen.part, now, patience)
    if before is None or before.told_at is None:
        return None, None
    well_since = before.well_since or now
    if now - well_since < patience.calm:
        return replace(before, well_since=well_since), None
    return None, Saying(seen.part, Step.RESOLVED, before.since, seen.sentence)


def _in_trouble(
    watch: Watch, part: str, now: datetime, patience: Patience
) -> tuple[Watch, Saying | None]:
    if watch.told_at is None:
        if now - watch.since < patience.trouble:
            return watch, None
        told = replace(watch, told_at=now)
        return told, Saying(part, Step.OPENED, watch.since, watch.sentence)
    if now - (watch.reminded_at or watch.told_at) < patience.remind:
        return watch, None
    reminded = replace(watch, reminded_at=now)
    return reminded, Saying(part, Step.REMINDER, watch.since, watch.sentence)


def forget_untold(watched: Mapping[str, Watch]) -> dict[str, Watch]:
    """Return the state with which a restarted watcher continues.

    Problems that have not been reported yet are dropped, because they began before the restart: the
    restarted watcher first makes its own checks.
    """
    return {part: one for part, one in watched.items() if one.told_at is not None}
