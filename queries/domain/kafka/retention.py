"""Calculate when a topic deletes a query's first unread record.

A broker deletes whole segments, by the age of their newest record (`retention.ms`) and by the
partition's size (`retention.bytes`). The time returned here is the earliest at which that may
happen; a segment with newer records keeps its old ones longer.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from queries.domain.kafka.lag import PartitionLook, deleted_unread, is_new, unread
from queries.domain.kafka.topic_ids import names
from queries.domain.readings import counted

#: The most bytes that a record takes in a log in addition to key and value: a batch of its own (61
#: bytes of header) and its own fields. Source: Kafka's record batch format, version 2.
RECORD_OVERHEAD_BYTES = 70
#: A running query is at risk only once its oldest record has used up this share of its retention.
RUNNING_SHARE = 0.5


class RetentionLimit(StrEnum):
    """The topic limit that deletes a record."""

    AGE = "age"  # retention.ms
    SIZE = "size"  # retention.bytes


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a topic keeps its records."""

    ms: int | None = None  # None: no limit
    bytes: int | None = None  # per partition; None: no limit
    deletes: bool = True  # cleanup.policy contains "delete"
    #: cleanup.policy contains "compact", so offsets are not records; None: no right to read it.
    compacts: bool | None = False


@dataclass(frozen=True, slots=True)
class DeletionDeadline:
    """When the first unread record of a partition may be deleted, and why."""

    at: datetime
    cause: RetentionLimit
    used: float  # used share of its time, or of the partition's size: 0.0 to 1.0


@dataclass(frozen=True, slots=True)
class Risk:
    """What a query will lose and when, as a sentence; already deleted if `at` is in the past."""

    at: datetime
    sentence: str


def read_retention(config: dict[str, str]) -> Retention:
    """Parse a topic's configuration; -1 and unreadable values mean no limit."""
    policy = {word.strip() for word in config.get("cleanup.policy", "delete").split(",")}
    return Retention(
        ms=_limit(config.get("retention.ms")),
        bytes=_limit(config.get("retention.bytes")),
        deletes="delete" in policy,
        compacts="compact" in policy,
    )


def clock(
    look: PartitionLook, retention: Retention, *, record_bytes: float | None, now: datetime
) -> DeletionDeadline | None:
    """Return when the first unread record may be deleted; None if none is unread or expires."""
    if not retention.deletes or not unread(look):
        return None
    clocks = [_by_age(look, retention, now), _by_size(look, retention, record_bytes, now)]
    return min(
        (deadline for deadline in clocks if deadline is not None),
        key=lambda deadline: deadline.at,
        default=None,
    )


def risk(
    parts: Sequence[tuple[PartitionLook, DeletionDeadline | None]],
    *,
    running: bool,
    may_have_read: bool,
    within: timedelta,
    now: datetime,
    replaced: Collection[str] = (),
) -> Risk | None:
    """Return what will be lost; None if nothing will be lost within the given time.

    What has already been lost comes first. A running query is not at risk just because it is a few
    seconds behind: its oldest unread record must have used up half of the retention time.
    `may_have_read`: a run is open, so deleted records count as lost only once a batch has committed
    past them. `replaced` are topics that were deleted and recreated, according to their IDs.
    """
    new = {look.topic for look, _ in parts if is_new(look)} | set(replaced)
    if new:
        return Risk(
            now,
            f"{names(new)} deleted and recreated: the offsets in the checkpoint belong to the "
            "old topic. Reset the query to earliest to read the new topic from its beginning.",
        )
    lost = [look for look, _ in parts if deleted_unread(look.committed, look.earliest)]
    if lost:
        return _lost(lost, now, certain=not may_have_read)
    due = [
        (look, deadline)
        for look, deadline in parts
        if deadline is not None
        and deadline.at - now <= within
        and not (running and deadline.used < RUNNING_SHARE)
    ]
    if not due:
        return None
    look, first = min(due, key=lambda pair: pair[1].at)
    where = f"{look.topic}-{look.partition}"
    others = f" and {len(due) - 1} more" if len(due) > 1 else ""
    why = (
        "their age (retention.ms)"
        if first.cause is RetentionLimit.AGE
        else "the partition's size (retention.bytes)"
    )
    unless = "unless the query gets faster" if running else "unless the query runs"
    left = first.at - now
    when = f"in {span(left)}" if left >= timedelta(minutes=1) else "any moment now"
    return Risk(
        first.at,
        f"Will lose data {when} {unless}: unread records of {where}{others} will be deleted "
        f"because of {why}.",
    )


def span(length: timedelta) -> str:
    """Return a remaining time in at most two units: "45 min", "3 h 10 min", "2 d 4 h"."""
    minutes = max(0, int(length.total_seconds() // 60))
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    days, rest = divmod(hours, 24)
    if days:
        return f"{days} d {rest} h" if rest else f"{days} d"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def _lost(lost: Sequence[PartitionLook], now: datetime, *, certain: bool) -> Risk:
    count = sum(deleted_unread(look.committed, look.earliest) for look in lost)
    where = ", ".join(f"{look.topic}-{look.partition}" for look in lost[:3])
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    were, they, them = ("was", "it", "it") if count == 1 else ("were", "they", "them")
    deleted = f"{counted(count, 'offset')} of {where}{more} {were} deleted before"
    if certain:
        return Risk(now, f"Has lost data: {deleted} {they} {were} read.")
    they_are = "It is" if count == 1 else "They are"
    return Risk(
        now,
        f"May lose data: {deleted} a batch committed {them}. "
        f"{they_are} lost unless the run has already fetched {them}.",
    )


def _by_age(look: PartitionLook, retention: Retention, now: datetime) -> DeletionDeadline | None:
    if retention.ms is None or look.record_at is None:
        return None
    age_ms = (now - look.record_at).total_seconds() * 1000
    at = _later(look.record_at, retention.ms)
    if at is None:
        return None
    used_share = age_ms / retention.ms if retention.ms else 1.0
    return DeletionDeadline(at, RetentionLimit.AGE, min(1.0, max(0.0, used_share)))


def _by_size(
    look: PartitionLook, retention: Retention, record_bytes: float | None, now: datetime
) -> DeletionDeadline | None:
    """Return when the records after the first unread one will fill the partition's limit."""
    waiting = unread(look)
    if retention.bytes is None or not record_bytes or waiting is None:
        return None
    room = retention.bytes / record_bytes - waiting  # in records
    used_share = min(1.0, waiting * record_bytes / retention.bytes) if retention.bytes else 1.0
    if room <= 0:
        return DeletionDeadline(now, RetentionLimit.SIZE, 1.0)
    if not look.arrival_rate:
        return None
    at = _later(now, room / look.arrival_rate * 1000)
    return DeletionDeadline(at, RetentionLimit.SIZE, used_share) if at is not None else None


def _later(moment: datetime, ms: float) -> datetime | None:
    """Return the time `ms` later; None if it is beyond the range of datetime."""
    try:
        return moment + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def _limit(text: str | None) -> int | None:
    try:
        value = int(text or "")
    except ValueError:
        return None
    return value if value >= 0 else None
