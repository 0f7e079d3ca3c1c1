"""Verify senders: each event must be sealed by its driver and be about that driver's own runs.

Otherwise anyone with access to Redis, or to a spool folder, could send events for any query.
"""

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from headgate_ground.spool import Spooled
from headgate_ground.tolerant.values import is_number
from headgate_ground.wire import EventKind, WireEvent, is_sealed

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

_REMEMBERED = 10_000  # drivers, and runs, cached
_MOST_RUNS = 1_000  # per heartbeat; a driver has some tens of queries


@dataclass(frozen=True, slots=True)
class EventSender:
    """A driver, according to its row."""

    epoch: int
    key: bytes  # seals its events


class SenderLookup(Protocol):
    """Look-ups in the control plane's tables (`controlplane.senders`)."""

    def drivers(self, ids: Collection[int]) -> Mapping[int, EventSender]:
        """Return drivers by id; drivers that have no row are omitted."""

    def runs(self, ids: Collection[int]) -> Mapping[int, tuple[int, int]]:
        """Return each run's driver and query, by run id; runs that have no row are omitted."""


class Senders:
    """Verifies events; looks up drivers and runs that are not cached yet, only once."""

    def __init__(self, lookup: SenderLookup) -> None:
        self._lookup = lookup
        self._drivers: OrderedDict[int, EventSender] = OrderedDict()
        self._runs: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def refusals(self, events: Sequence[tuple[WireEvent, bytes]]) -> list[str]:
        """Return why each event is rejected, given with its entry; "" if the event is trusted."""
        self._learn(event for event, _ in events)
        return [self._refusal(event, entry) for event, entry in events]

    def _learn(self, events: Iterable[WireEvent]) -> None:
        drivers: set[int] = set()
        runs: set[int] = set()
        for event in events:
            drivers.add(event.driver)
            named = _runs_of(event)
            if len(named) <= _MOST_RUNS:
                runs |= named
        if new := drivers - self._drivers.keys():
            _remember(self._drivers, self._lookup.drivers(new))
        if new := runs - self._runs.keys():
            _remember(self._runs, self._lookup.runs(new))

    def _refusal(self, event: WireEvent, entry: bytes) -> str:
        sender = self._drivers.get(event.driver)
        if sender is None:
            return f"there is no driver number {event.driver}"
        if event.epoch != sender.epoch:
            return f"driver number {event.driver} has epoch {sender.epoch}, not {event.epoch}"
        if not is_sealed(entry, sender.key):
            return f"it is not sealed by driver {event.epoch}"
        named = _runs_of(event)
        if len(named) > _MOST_RUNS:
            return f"it names {len(named)} runs, more than {_MOST_RUNS}"
        for run in sorted(named):
            driver, query = self._runs.get(run, (None, None))
            if driver != event.driver:
                return f"run number {run} does not belong to driver {event.epoch}"
            if event.run == run and event.query != query:
                return f"run number {run} does not belong to query number {event.query}"
        if event.run is None and event.query is not None:
            return "it is about a query but contains no run"
        return ""


def _runs_of(event: WireEvent) -> set[int]:
    """Return the runs that an event is about; a heartbeat lists them in its body."""
    runs = set() if event.run is None else {event.run}
    if event.kind is EventKind.HEARTBEAT:
        for part in ("queries", "task_times"):
            part_body = event.body.get(part)
            for entry in part_body if isinstance(part_body, list) else ():
                if isinstance(entry, dict) and is_number(entry.get("run")):
                    runs.add(entry["run"])
    return runs


def _remember(memory: OrderedDict[int, Value], entries: Mapping[int, Value]) -> None:
    memory.update(entries)
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)


def believed_only(spooled: Spooled, lookup: SenderLookup) -> Spooled:
    """Yield `spooled` without untrusted lines, because anyone could write to a spool folder."""
    senders = Senders(lookup)

    def lines(epoch: int, first: int) -> Iterator[tuple[int, bytes]]:
        for seq, entry in spooled(epoch, first):
            try:
                event = WireEvent.decode(entry)
                if (event.epoch, event.seq) != (epoch, seq):
                    raise ValueError(f"it is event {event.seq} of driver {event.epoch}")
                if refusal := senders.refusals([(event, entry)])[0]:
                    raise ValueError(refusal)
            except ValueError as error:
                logger.warning("skipping line %s of driver %s's spool: %s", seq, epoch, error)
                continue
            yield seq, entry

    return lines
