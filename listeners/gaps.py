"""Count what did not arrive, fetch it from the drivers' spools, and say what is lost for good.

A hole between stored numbers proves a loss only when nothing that came before its far side is
still being stored: a driver sends in order, so the missing entry would be before it in the
stream. A gap row is stored for each hole and brought up to date as long as it may still close.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from django.db import transaction
from django.db.models import Count, Min, Q

from controlplane import nudge
from listeners import models
from listeners.ingest import drained_to, last_delivered
from listeners.ranges import Range, holes, overlap
from listeners.store import Batch, store
from listeners.wire import Event, Kind

logger = logging.getLogger(__name__)

#: The driver fetches missing batches from its queries' memory within seconds; a batch that
#: has not come after this long will not.
BATCH_HOPELESS_AFTER = timedelta(seconds=120)
_EXITS = "exits"  # the cursor over drivers' exits


#: What gives (seq, JSON) of the spool of an epoch's driver, from a number on and in order;
#: nothing where it is gone.
Spooled = Callable[[int, int], Iterable[tuple[int, bytes]]]
#: What gives those of some drivers whose spools are on this host.
Here = Callable[[set[int]], set[int]]
Ends = dict[int, tuple[int, int]]  # of drivers that have just ended: epoch, last number


@dataclass(frozen=True, slots=True)
class Key:
    """Whose numbers: a driver's sequence (no run id), or a run's batches."""

    driver: int
    kind: str  # seq | batch
    spark_run_id: str = ""


@dataclass(slots=True)
class Missing:
    """What is missing of one key now."""

    key: Key
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
    drivers_here: Here = set,
) -> bool:
    """Bring gaps up to date, repairing from spools; return False where it is too early to judge.

    Judges the drivers of `drivers_here` only, whose spools `spooled` can read; each `host` reads
    the drivers' exits at its own pace.

    1. Note how far the stream had been handed out.
    2. Wait for the next call unless all of that is stored.
    3. Fetch what spools still hold; whatever is missing then becomes or stays a gap.
    """
    delivered = last_delivered(client, stream)
    if delivered is None or not drained_to(client, stream, delivered):
        return False
    exits, place = _new_exits(host)
    ours = drivers_here({event.driver for event in exits})
    ends = {
        event.driver: (event.epoch, last)
        for event in exits
        if event.driver in ours and (last := _last_number(event, spooled))
    }
    missing = _find_missing(ends, drivers_here)
    for one in missing:
        _open(one, now)
    repaired = _repair_from_spools(missing, spooled, now)
    with transaction.atomic():
        for one in _find_missing(ends, drivers_here):
            for gap in one.gaps:
                _update(gap, one.holes, now, from_spool=bool(repaired))
        if exits:
            models.Cursor.advance(place, exits[-1].pk)
    return True


def note_exit(*, driver: int, epoch: int, last_seq: int | None, at: datetime) -> None:
    """Record a driver's end that may be missing in the event stream; its tail is judged then."""
    models.Event.objects.bulk_create(
        [
            models.Event(
                driver=driver,
                epoch=epoch,
                seq=0,
                at=at,
                received_at=at,
                kind=Kind.DRIVER_EXIT,
                body={"last_seq": last_seq},
            )
        ],
        ignore_conflicts=True,
    )


# --- what is missing ----------------------------------------------------------------------
def _find_missing(ends: Ends, drivers_here: Here) -> list[Missing]:
    """Return every key of the drivers here with holes or with gaps that may still close."""
    gaps: dict[Key, list[models.Gap]] = defaultdict(list)
    for gap in models.Gap.objects.filter(Q(closed_at=None) | Q(beyond_repair=True)):
        gaps[Key(gap.driver, gap.kind, gap.spark_run_id)].append(gap)
    keys = {*gaps, *_keys_with_holes(), *(Key(driver, "seq") for driver in ends)}
    ours = drivers_here({key.driver for key in keys})
    keys = {key for key in keys if key.driver in ours}
    rows: dict[Key, list[models.Received]] = defaultdict(list)
    found = models.Received.objects.filter(
        driver__in={key.driver for key in keys}, spark_run_id__in={key.spark_run_id for key in keys}
    )
    for row in found.order_by("first"):
        rows[Key(row.driver, row.kind, row.spark_run_id)].append(row)
    missing = [
        _missing(key, rows[key], gaps[key], ends) for key in keys if rows[key] or key.driver in ends
    ]
    return [one for one in missing if one.holes or one.gaps]


def _missing(key: Key, rows: list[models.Received], gaps: list[models.Gap], ends: Ends) -> Missing:
    last = max((gap.last for gap in gaps), default=0)
    epoch, end = ends.get(key.driver, (0, 0))
    if key.kind == "seq":
        last = max(last, end)
    return Missing(
        key,
        rows[0].epoch if rows else epoch,
        rows[0].query if rows else None,
        rows[0].run if rows else None,
        holes(
            ((row.first, row.last) for row in rows),
            first=1 if key.kind == "seq" else None,
            last=last or None,
        ),
        gaps,
    )


def _keys_with_holes() -> set[Key]:
    found = (
        models.Received.objects.values("driver", "kind", "spark_run_id")
        .annotate(ranges=Count("pk"), lowest=Min("first"))
        .filter(Q(ranges__gt=1) | Q(kind="seq", lowest__gt=1))
    )
    return {Key(row["driver"], row["kind"], row["spark_run_id"]) for row in found}


def _new_exits(host: str) -> tuple[list[models.Event], str]:
    """Return the drivers' exits that a host has not read, and the name of its cursor.

    A host that reads for the first time begins where there was one cursor for all.
    """
    name = f"{_EXITS}:{sha256(host.encode()).hexdigest()[:12]}" if host else _EXITS
    known = dict(models.Cursor.objects.filter(name__in=(name, _EXITS)).values_list())
    after = known.get(name, known.get(_EXITS, 0))
    exits = models.Event.objects.filter(kind=Kind.DRIVER_EXIT, pk__gt=after)
    return list(exits.order_by("pk")[:1000]), name


def _last_number(exit_event: models.Event, spooled: Spooled) -> int | None:
    """Return a dead driver's last number: as it said itself, else as its spool shows."""
    said = exit_event.body.get("last_seq")
    if isinstance(said, int):
        return said
    known = models.Received.objects.filter(driver=exit_event.driver, kind="seq").order_by("-last")
    after = known.values_list("last", flat=True).first() or 0
    numbers = (seq for seq, _ in spooled(exit_event.epoch, after + 1))
    return max(numbers, default=None)


# --- repair -------------------------------------------------------------------------------
def _repair_from_spools(missing: list[Missing], spooled: Spooled, now: datetime) -> int:
    """Store what spools hold of missing sequence numbers; return how many events that were."""
    repaired = 0
    for one in missing:
        hopeless = [(gap.first, gap.last) for gap in one.gaps if gap.beyond_repair]
        wanted = [hole for hole in one.holes if overlap(hole, hopeless) < _width(hole)]
        if one.key.kind == "seq" and wanted:
            repaired += _repair(one, wanted, spooled, now)
    return repaired


def _repair(one: Missing, wanted: list[Range], spooled: Spooled, now: datetime) -> int:
    batch = Batch(now)
    found = 0
    for seq, data in spooled(one.epoch, wanted[0][0]):
        if seq > wanted[-1][1]:
            break
        if not overlap((seq, seq), wanted):
            continue
        try:
            event = Event.decode(data)
            if (event.driver, event.epoch) == (one.key.driver, one.epoch):
                batch.add(replace(event, repaired=True))
                found += 1
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("event %s of driver %s is unsound: %s", seq, one.key.driver, error)
    if found:
        store(batch)
        topics = {f"query:{event.query}" for event in batch.about_queries}
        nudge.changed(f"driver:{one.key.driver}", *sorted(topics))
        logger.info("repaired %s events of driver %s from its spool", found, one.key.driver)
    return found


# --- gaps ---------------------------------------------------------------------------------
def _open(one: Missing, now: datetime) -> None:
    """Make a gap of each hole that has none."""
    covered = [(gap.first, gap.last) for gap in one.gaps]
    models.Gap.objects.bulk_create(
        [
            models.Gap(
                kind=one.key.kind,
                driver=one.key.driver,
                query=one.query,
                run=one.run,
                spark_run_id=one.key.spark_run_id,
                first=hole[0],
                last=hole[1],
                missing=_width(hole),
                noticed_at=now,
            )
            for hole in one.holes
            if not overlap(hole, covered)
        ],
        ignore_conflicts=True,
    )


def _update(gap: models.Gap, missing: list[Range], now: datetime, *, from_spool: bool) -> None:
    """Bring a gap up to date with what is still missing.

    The spool has just been asked for lost sequence numbers: what it does not hold is lost.
    """
    before = (gap.repaired, gap.beyond_repair, gap.closed_at)
    remaining = overlap((gap.first, gap.last), missing)
    gap.repaired = gap.missing - remaining
    hopeless = gap.kind == "seq" or now - gap.noticed_at > BATCH_HOPELESS_AFTER
    if remaining == 0:
        gap.closed_at, gap.beyond_repair = gap.closed_at or now, False
    elif gap.closed_at is None and hopeless:
        gap.closed_at, gap.beyond_repair = now, True
    if gap.repaired > before[0]:
        gap.source = "spool" if from_spool or gap.kind == "seq" else "memory"
    if before != (gap.repaired, gap.beyond_repair, gap.closed_at):
        gap.save(update_fields=["repaired", "closed_at", "beyond_repair", "source"])


def _width(hole: Range) -> int:
    return hole[1] - hole[0] + 1
