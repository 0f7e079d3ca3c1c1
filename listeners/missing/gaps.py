"""Count missing events, fetch them from drivers' spools, and report those that are lost.

A hole between stored numbers proves a loss only if no event that arrived before the hole's upper
end is still being stored: a driver sends in order, so the missing entries would be earlier in the
stream. A gap row is stored for each hole and updated as long as the gap can still close.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Min, Q

from controlplane import nudge
from headgate_ground.spool import Spooled
from headgate_ground.wire import EventKind, WireEvent
from listeners import models, streams
from listeners.loops.backlogs import GAPS, loop_errors, of_host, quarantine
from listeners.loops.slices import BulkRun, bulk_work
from listeners.store import EventBatch, Range, holes, overlap, store

logger = logging.getLogger(__name__)
_errors = loop_errors("gaps", logger)

LIMIT_S = 5.0  # per call, which leaves the thread to its other ticks
#: Events of one spool read and stored per call, while the other drivers wait.
MOST_REPAIRED = 5_000
#: How long a dead driver's unreadable spool is retried.
SEARCHED_AGAIN_FOR = timedelta(hours=1)

#: The driver fetches missing batches from its queries' memory within seconds; a batch that has not
#: arrived after this long will not arrive.
BATCH_HOPELESS_AFTER = timedelta(seconds=120)
_EXITS = "exits"  # the cursor over drivers' exits

#: Returns those drivers whose spools are on this host.
LocalDrivers = Callable[[set[int]], set[int]]
Ends = dict[int, tuple[int, int]]  # of drivers that just ended: epoch, last number


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """The key of a sequence: a driver's events (no run id), or a run's batches."""

    driver: int
    kind: str  # seq or batch
    spark_run_id: str = ""

    @property
    def name(self) -> str:
        """Return the key's name for logs and pages."""
        return f"driver {self.driver}" + (f", run {self.spark_run_id}" * bool(self.spark_run_id))


@dataclass(slots=True)
class MissingEvents:
    """The numbers that are currently missing for one key."""

    key: SequenceKey
    epoch: int
    query: int | None
    run: int | None
    holes: list[Range]
    gaps: list[models.Gap]


def judge(
    *,
    client: Any,
    stream: str,
    spooled: Spooled,
    now: datetime,
    host: str = "",
    drivers_here: LocalDrivers = set,
    limit_s: float = LIMIT_S,
) -> bool:
    """Update gaps and repair them from spools; return False if it is too early to decide.

    This covers only the drivers that `drivers_here` returns, whose spools `spooled` can read; each
    `host` reads the drivers' exits at its own pace.

    1. Record how far the streams have been delivered.
    2. Leave drivers whose stream is not yet stored up to there to the next call; for the common
       stream, leave all of its drivers.
    3. Fetch events still in the spools; numbers that are still missing then become or remain
       gaps.

    Each driver is checked separately, and everything is written in slices, for at most `limit_s`;
    the next call continues. Also returns False if another worker is doing this work.
    """
    busy = streams.busy(client, stream)
    if busy is None or 0 in busy:
        return False
    cursor = of_host(_EXITS, host)
    with bulk_work(of_host(GAPS, host), limit_s=limit_s) as work:
        if work is None:
            return False
        exits = _new_exits(cursor)
        ours = drivers_here({event.driver for event in exits})
        ends, judged_to = _ends(exits, ours, busy, spooled, now)
        missing = _find_missing(ends, busy, drivers_here)
        _in_slices(work, missing, lambda sequence: _open(sequence, now), "open")
        searched_keys, unread, repaired = _repair_from_spools(work, missing, spooled, now)
        again = _find_missing(ends, busy, drivers_here)
        done = _in_slices(
            work,
            again,
            lambda sequence: _settle_gaps(sequence, searched_keys, repaired, now),
            "judge",
        )
        unread_exits = [event.pk for event in exits if SequenceKey(event.driver, "seq") in unread]
        judged_to = min([judged_to, *(pk - 1 for pk in unread_exits)])
        if done and judged_to:
            with work.slice():
                models.Cursor.advance(cursor, judged_to)
        waiting = [event for event in exits if event.pk > judged_to and event.driver in ours]
        work.left(*_left(again, searched_keys, waiting))
        return True
    return False


def _in_slices(
    work: BulkRun,
    every: Sequence["MissingEvents"],
    write: Callable[["MissingEvents"], None],
    kind: str,
) -> bool:
    """Write one driver or run at a time; return whether there was time for all."""
    waiting = list(every)
    while waiting and work.has_time:
        some, waiting = waiting[: work.size(kind)], waiting[work.size(kind) :]
        with work.slice(len(some), kind) as work_slice:
            while some and not work_slice.over:
                this = some.pop(0)
                with _errors.isolate_errors(f"{this.key.name} ({kind})"), transaction.atomic():
                    write(this)
        waiting = some + waiting
    return not waiting


def _settle_gaps(
    missing: "MissingEvents", searched_keys: set["SequenceKey"], repaired: int, now: datetime
) -> None:
    """Settle the gaps of a driver or run.

    If the spool was searched for all missing events (`searched_keys`), those that it does not
    contain are lost.
    """
    for gap in missing.gaps:
        is_seq = gap.kind == "seq"
        settle(
            gap,
            remaining=overlap((gap.first, gap.last), missing.holes),
            now=now,
            hopeless=missing.key in searched_keys
            if is_seq
            else now - gap.noticed_at > BATCH_HOPELESS_AFTER,
            source="spool" if repaired or is_seq else "memory",
        )


def _left(
    missing: Sequence["MissingEvents"], asked: set["SequenceKey"], exits: Sequence[models.Event]
) -> tuple[int, datetime | None]:
    """Return the number of drivers and runs to be checked, and since when the oldest has waited."""
    open_gaps = [
        gap.noticed_at
        for sequence in missing
        if sequence.key.kind == "seq" and sequence.key not in asked
        for gap in sequence.gaps
        if gap.closed_at is None
    ]
    waiting = open_gaps + [event.at for event in exits]
    return len(waiting), min(waiting, default=None)


def note_exit(*, driver: int, epoch: int, last_seq: int | None, at: datetime) -> None:
    """Record a driver's exit that may be missing from the stream, so that its tail is checked."""
    models.Event.objects.bulk_create(
        [
            models.Event(
                driver=driver,
                epoch=epoch,
                seq=0,
                at=at,
                received_at=at,
                kind=EventKind.DRIVER_EXIT,
                body={"last_seq": last_seq},
            )
        ],
        ignore_conflicts=True,
    )


# --- missing numbers ----------------------------------------------------------------------
def _find_missing(
    ends: Ends, busy: frozenset[int], drivers_here: LocalDrivers
) -> list[MissingEvents]:
    """Return every key of the drivers here that has holes, or gaps that may still close.

    This excludes `busy` epochs, which still have events that are being stored.
    """
    gaps: dict[SequenceKey, list[models.Gap]] = defaultdict(list)
    for gap in models.Gap.objects.filter(Q(closed_at=None) | Q(beyond_repair=True)):
        gaps[SequenceKey(gap.driver, gap.kind, gap.spark_run_id)].append(gap)
    keys = {*gaps, *_keys_with_holes(), *(SequenceKey(driver, "seq") for driver in ends)}
    ours = drivers_here({key.driver for key in keys})
    keys = {key for key in keys if key.driver in ours}
    rows: dict[SequenceKey, list[models.Received]] = defaultdict(list)
    received_rows = models.Received.objects.filter(
        driver__in={key.driver for key in keys}, spark_run_id__in={key.spark_run_id for key in keys}
    )
    for row in received_rows.order_by("first"):
        rows[SequenceKey(row.driver, row.kind, row.spark_run_id)].append(row)
    missing = [
        _missing(key, rows[key], gaps[key], ends)
        for key in keys
        if rows[key] or (key.kind == "seq" and key.driver in ends)
    ]
    return [
        sequence
        for sequence in missing
        if (sequence.holes or sequence.gaps) and sequence.epoch not in busy
    ]


def _missing(
    key: SequenceKey, rows: list[models.Received], gaps: list[models.Gap], ends: Ends
) -> MissingEvents:
    last = max((gap.last for gap in gaps), default=0)
    first = min((gap.first for gap in gaps), default=None)
    epoch, end = ends.get(key.driver, (0, 0))
    if key.kind == "seq":
        first, last = 1, max(last, end)
    elif first is not None and rows and first > rows[0].first:
        first = None  # missing numbers are between stored ones
    return MissingEvents(
        key,
        rows[0].epoch if rows else epoch,
        rows[0].query if rows else None,
        rows[0].run if rows else None,
        holes(
            ((row.first, row.last) for row in rows),
            first=first,
            last=last or None,
        ),
        gaps,
    )


def _keys_with_holes() -> set[SequenceKey]:
    rows = (
        models.Received.objects.values("driver", "kind", "spark_run_id")
        .annotate(ranges=Count("pk"), lowest=Min("first"))
        .filter(Q(ranges__gt=1) | Q(kind="seq", lowest__gt=1))
    )
    return {SequenceKey(row["driver"], row["kind"], row["spark_run_id"]) for row in rows}


def _new_exits(cursor: str) -> list[models.Event]:
    """Return the driver exits after a cursor.

    A host that reads exits for the first time starts at the former shared cursor.
    """
    rows = models.Cursor.objects.filter(name__in=(cursor, _EXITS))
    positions = dict(rows.values_list("name", "position"))
    after = positions.get(cursor, positions.get(_EXITS, 0))
    exits = models.Event.objects.filter(kind=EventKind.DRIVER_EXIT, pk__gt=after)
    return list(exits.order_by("pk")[:1000])


def _ends(
    exits: list[models.Event],
    ours: set[int],
    busy: frozenset[int],
    spooled: Spooled,
    now: datetime,
) -> tuple[Ends, int]:
    """Return our ended drivers' last numbers, and the exit up to which these are known.

    If the spool of an exited driver cannot be read now, the next calls retry this exit and those
    after it; after a while, it is skipped. An exit of a `busy` epoch is also left to the next
    calls.
    """
    ends: Ends = {}
    judged_to, whole = 0, True
    for event in exits:
        about = f"the end of {SequenceKey(event.driver, 'seq').name}"
        last = None
        if event.epoch in busy:
            whole = False
            continue
        try:
            last = _last_number(event, spooled) if event.driver in ours else None
        except Exception as error:
            if event.received_at > now - SEARCHED_AGAIN_FOR:
                _errors.record_error(about, error)
                whole = False
            else:
                quarantine(GAPS, about, error, log=logger)
        if last:
            ends[event.driver] = (event.epoch, last)
        if whole:
            judged_to = event.pk
    return ends, judged_to


def _last_number(exit_event: models.Event, spooled: Spooled) -> int | None:
    """Return an ended driver's last number, from its own report or otherwise from its spool."""
    last_seq = exit_event.body.get("last_seq")
    if isinstance(last_seq, int):
        return last_seq
    received_rows = models.Received.objects.filter(driver=exit_event.driver, kind="seq").order_by(
        "-last"
    )
    after = received_rows.values_list("last", flat=True).first() or 0
    numbers = (seq for seq, _ in spooled(exit_event.epoch, after + 1))
    return max(numbers, default=None)


# --- repair -------------------------------------------------------------------------------
def _repair_from_spools(
    work: BulkRun, missing: list[MissingEvents], spooled: Spooled, now: datetime
) -> tuple[set[SequenceKey], set[SequenceKey], int]:
    """Store missing events from spools; return two sets of keys, and the count.

    The first set: spools that were read completely, or that could not be read for an hour. The
    second: spools that could not be read now.
    """
    searched_keys: set[SequenceKey] = set()
    unread: set[SequenceKey] = set()
    repaired = 0
    for sequence in missing:
        hopeless = [(gap.first, gap.last) for gap in sequence.gaps if gap.beyond_repair]
        wanted = [hole for hole in sequence.holes if overlap(hole, hopeless) < _width(hole)]
        if sequence.key.kind != "seq":
            continue
        unread.add(sequence.key)
        with _errors.isolate_errors(f"the spool of {sequence.key.name}"):
            whole, count = _repair(work, sequence, wanted, spooled, now) if wanted else (True, 0)
            repaired += count
            unread.remove(sequence.key)
            if whole:
                searched_keys.add(sequence.key)
    abandoned_keys = {
        sequence.key for sequence in missing if sequence.key in unread and _is_old(sequence, now)
    }
    return searched_keys | abandoned_keys, unread - abandoned_keys, repaired


def _is_old(missing: MissingEvents, now: datetime) -> bool:
    """Return whether none of the open gaps is new; a gap without a row is new."""
    at = [gap.noticed_at for gap in missing.gaps if gap.closed_at is None]
    return bool(at) and max(at) <= now - SEARCHED_AGAIN_FOR


def _repair(
    work: BulkRun, missing: MissingEvents, wanted: list[Range], spooled: Spooled, now: datetime
) -> tuple[bool, int]:
    """Store a spool's missing events; return whether all were read, and the number of events."""
    events: list[WireEvent] = []
    whole = True
    for seq, data in spooled(missing.epoch, wanted[0][0]):
        if seq > wanted[-1][1]:
            break
        if not overlap((seq, seq), wanted):
            continue
        if len(events) >= MOST_REPAIRED or not work.has_time:
            whole = False
            break
        try:
            event = WireEvent.decode(data)
            if (event.driver, event.epoch) == (missing.key.driver, missing.epoch):
                EventBatch(now).add(event)  # raises if its body is not valid
                events.append(replace(event, repaired=True))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("event %s of driver %s is invalid: %s", seq, missing.key.driver, error)

    def refused(event: WireEvent, error: Exception) -> None:
        quarantine(GAPS, f"event {event.seq} of {missing.key.name}", error, log=logger)

    whole = work.write(events, lambda some: _store(some, now), refused, "store") and whole
    if events:
        topics = {f"query:{event.query}" for event in events if event.query is not None}
        nudge.changed(f"driver:{missing.key.driver}", *sorted(topics))
        logger.info(
            "repaired %s events of driver %s from its spool", len(events), missing.key.driver
        )
    return whole, len(events)


def _store(events: Sequence[WireEvent], now: datetime) -> None:
    batch = EventBatch(now)
    for event in events:
        batch.add(event)
    store(batch)


# --- gaps ---------------------------------------------------------------------------------
def _open(missing: MissingEvents, now: datetime) -> None:
    """Create a gap for each hole that does not have one."""
    covered = [(gap.first, gap.last) for gap in missing.gaps]
    models.Gap.objects.bulk_create(
        [
            models.Gap(
                kind=missing.key.kind,
                driver=missing.key.driver,
                query=missing.query,
                run=missing.run,
                spark_run_id=missing.key.spark_run_id,
                first=hole[0],
                last=hole[1],
                missing=_width(hole),
                noticed_at=now,
            )
            for hole in missing.holes
            if not overlap(hole, covered)
        ],
        ignore_conflicts=True,
    )


def settle(
    gap: models.Gap, *, now: datetime, hopeless: bool, source: str, remaining: int | None = None
) -> int:
    """Record the state of a gap; return how many of its numbers are missing.

    Only this function repairs, closes or gives up a gap: after each judging, at a run's end, and
    after a repair from a checkpoint. `hopeless`: the missing numbers will not arrive. `source`:
    where numbers that have arrived since came from. `remaining`: how many are missing, if known; if
    that changes the row, the row and its numbers are read again under a lock, because two of these
    may happen at the same time.
    """
    if remaining is not None and not _settled(gap, remaining, now, hopeless, source):
        return remaining
    with transaction.atomic():
        gap = models.Gap.objects.select_for_update().get(pk=gap.pk)
        received_rows = models.Received.objects.filter(
            kind=gap.kind, driver=gap.driver, spark_run_id=gap.spark_run_id
        )
        ranges = [(row.first, row.last) for row in received_rows]
        remaining = gap.last - gap.first + 1 - overlap((gap.first, gap.last), ranges)
        if _settled(gap, remaining, now, hopeless, source):
            gap.save(update_fields=["repaired", "closed_at", "beyond_repair", "source"])
    return remaining


def _settled(gap: models.Gap, remaining: int, now: datetime, hopeless: bool, source: str) -> bool:
    """Change the gap by the number of numbers that are missing; return whether it has changed."""
    before = (gap.repaired, gap.beyond_repair, gap.closed_at)
    gap.repaired = gap.missing - remaining
    if remaining == 0:
        gap.closed_at, gap.beyond_repair = gap.closed_at or now, False
    elif gap.closed_at is None and hopeless:
        gap.closed_at, gap.beyond_repair = now, True
    if gap.repaired > before[0]:
        gap.source = source
    return before != (gap.repaired, gap.beyond_repair, gap.closed_at)


def _width(hole: Range) -> int:
    return hole[1] - hole[0] + 1
