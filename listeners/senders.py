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
from headgate_ground.wire import Event, Kind, is_sealed

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

_REMEMBERED = 10_000  # drivers, and runs, cached
_MOST_RUNS = 1_000  # per heartbeat; a driver has some tens of queries


@dataclass(frozen=True, slots=True)
class Sender:
    """A driver, according to its row."""

    epoch: int
    key: bytes  # seals its events


class Known(Protocol):
    """Look-ups in the control plane's tables (`controlplane.senders`)."""

    def drivers(self, ids: Collection[int]) -> Mapping[int, Sender]:
        """Return drivers by id; drivers that have no row are omitted."""

    def runs(self, ids: Collection[int]) -> Mapping[int, tuple[int, int]]:
        """Return each run's driver and query, by run id; runs that have no row are omitted."""


class Senders:
    """Verifies events; looks up drivers and runs that are not cached yet, only once."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._drivers: OrderedDict[int, Sender] = OrderedDict()
        self._runs: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def refusals(self, events: Sequence[tuple[Event, bytes]]) -> list[str]:
        """Return why each event is rejected, given with its entry; "" if the event is trusted."""
        self._learn(event for event, _ in events)
        return [self._refusal(event, entry) for event, entry in events]

    def _learn(self, events: Iterable[Event]) -> None:
        drivers: set[int] = set()
        runs: set[int] = set()
        for event in events:
            drivers.add(event.driver)
            named = _runs_of(event)
            if len(named) <= _MOST_RUNS:
                runs |= named
        if new := drivers - self._drivers.keys():
            _remember(self._drivers, self._known.drivers(new))
        if new := runs - self._runs.keys():
            _remember(self._runs, self._known.runs(new))

    def _refusal(self, event: Event, entry: bytes) -> str:
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


def _runs_of(event: Event) -> set[int]:
    """Return the runs that an event is about; a heartbeat lists them in its body."""
    runs = set() if event.run is None else {event.run}
    if event.kind is Kind.HEARTBEAT:
        for part in ("queries", "task_times"):
            told = event.body.get(part)
            for one in told if isinstance(told, list) else ():
                if isinstance(one, dict) and is_number(one.get("run")):
                    runs.add(one["run"])
    return runs


def _remember(memory: OrderedDict[int, Value], found: Mapping[int, Value]) -> None:
    memory.update(found)
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)


def believed_only(spooled: Spooled, known: Known) -> Spooled:
    """Yield `spooled` without untrusted lines, because anyone could write to a spool folder."""
    senders = Senders(known)

    def lines(epoch: int, first: int) -> Iterator[tuple[int, bytes]]:
        for seq, entry in spooled(epoch, first):
            try:
                event = Event.decode(entry)
                if (event.epoch, event.seq) != (epoch, seq):
                    raise ValueError(f"it is event {event.seq} of driver {event.epoch}")
                if refusal := senders.refusals([(event, entry)])[0]:
                    raise ValueError(refusal)
            except ValueError as error:
                logger.warning("skipping line %s of driver %s's spool: %s", seq, epoch, error)
                continue
            yield seq, entry

    return lines
