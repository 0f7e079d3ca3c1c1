"""Turn received messages into events, each one once, in order, with its query and run.

Everything runs on one thread, which handles one message after the other, so no lock is needed.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from headgate_ground.tolerant.values import at_s
from headgate_ground.wire import Event, Kind
from listeners.spark.listener import Heard
from listeners.spark.repair import Progress, RunBatches
from listeners.spark.settings import TelemetrySettings

_KEPT_RUNS = 200  # per driver; the oldest ended ones are dropped first
_REMEMBERED_ENDS = 1_000  # Terminated events remembered for `terminated`


@dataclass(frozen=True, slots=True)
class RunKnown:
    """The runtime's message that names the query and run of one of Spark's run ids."""

    query: int
    run: int
    spark_run_id: str
    jquery: Any


@dataclass(frozen=True, slots=True)
class Recalled:
    """The batches that a query remembers."""

    spark_run_id: str
    remembered: list[Progress]
    overdue_at: float | None  # see RunBatches.recall


@dataclass(frozen=True, slots=True)
class Said:
    """A message from the driver itself."""

    kind: Kind
    body: dict[str, Any]
    query: int | None = None
    run: int | None = None
    at: float = field(default_factory=time.time)


@dataclass(slots=True)
class RunLine:
    """A run, as known to telemetry."""

    known: RunKnown
    batches: RunBatches = field(default_factory=RunBatches)
    recalled_at: float = 0.0  # monotonic
    recall_after: float = 0.0  # monotonic
    done: bool = False  # ended and recalled for the last time


@dataclass(slots=True)
class _Held:
    since: float  # monotonic
    heard: Heard
    body: dict[str, Any]


class Sorter:
    """The thread's state: runs by Spark's run id, held events, ended runs."""

    def __init__(
        self,
        *,
        driver: int,
        epoch: int,
        settings: TelemetrySettings,
        emit: Callable[[Event], Any],
        mask: Callable[[Any], Any],
    ) -> None:
        self._driver = driver
        self._epoch = epoch
        self._settings = settings
        self._emit = emit
        self._mask = mask
        self.runs: dict[str, RunLine] = {}
        self._forgotten = (0, 0)  # missing and repaired batches of forgotten runs
        self._held: dict[str, list[_Held]] = {}
        self._held_count = 0
        self._ends: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._ended = threading.Condition()

    def take(self, message: Heard | RunKnown | Recalled | Said) -> None:
        """Turn one message into its events; there may be none or several."""
        match message:
            case Heard():
                self._hear(message)
            case RunKnown():
                self._know(message)
            case Recalled():
                self._recall(message)
            case Said():
                self._say(message)

    def release_held(self, now: float) -> None:
        """Release held events whose run has not become known in time.

        `now` is monotonic; infinity releases everything, for a driver that is exiting.
        """
        for spark_run_id in list(self._held):
            if now - self._held[spark_run_id][0].since > self._settings.hold_s:
                self._release(spark_run_id)

    def terminated(self, spark_run_id: str, timeout_s: float) -> dict[str, Any] | None:
        """Wait for a run's Terminated event and return it; None if it does not arrive in time."""
        with self._ended:
            self._ended.wait_for(lambda: spark_run_id in self._ends, timeout_s)
            return self._ends.get(spark_run_id)

    def losses(self) -> tuple[int, int]:
        """Return how many batches were missing and how many were recovered, in all runs."""
        missing, repaired = self._forgotten
        for line in list(self.runs.values()):
            missing += line.batches.missing
            repaired += line.batches.repaired
        return missing, repaired

    # --- one message each -----------------------------------------------------------------
    def _hear(self, heard: Heard) -> None:
        body = orjson.loads(heard.text)
        if heard.kind is Kind.PROGRESS:
            body = body["progress"]
        spark_run_id = str(body["runId"])
        if heard.kind is Kind.TERMINATED:
            self._note_end(spark_run_id, body)
        if spark_run_id in self.runs:
            self._tell(self.runs[spark_run_id], heard, body)
            return
        self._held.setdefault(spark_run_id, []).append(_Held(time.monotonic(), heard, body))
        self._held_count += 1
        if self._held_count > self._settings.hold_events:
            self._release(next(iter(self._held)))

    def _know(self, known: RunKnown) -> None:
        line = self.runs.setdefault(known.spark_run_id, RunLine(known))
        held = self._held.pop(known.spark_run_id, [])
        self._held_count -= len(held)
        for waiting in held:
            self._tell(line, waiting.heard, waiting.body)
        if len(self.runs) > _KEPT_RUNS:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        for spark_run_id, line in self.runs.items():
            if line.done:
                missing, repaired = self._forgotten
                batches = self.runs.pop(spark_run_id).batches
                self._forgotten = (missing + batches.missing, repaired + batches.repaired)
                return

    def _recall(self, recalled: Recalled) -> None:
        line = self.runs.get(recalled.spark_run_id)
        if line is None:
            return
        found = line.batches.recall(recalled.remembered, overdue_at=recalled.overdue_at)
        for progress in found:
            self._emit(self._event_of(Kind.PROGRESS, time.time(), progress, line, repaired=True))

    def _say(self, said: Said) -> None:
        self._emit(self._event(said.kind, said.at, said.body, query=said.query, run=said.run))

    # --- events ---------------------------------------------------------------------------
    def _tell(self, line: RunLine, heard: Heard, body: dict[str, Any]) -> None:
        if heard.kind is Kind.PROGRESS and not line.batches.tell(int(body["batchId"])):
            return
        self._emit(self._event_of(heard.kind, heard.at, body, line))

    def _release(self, spark_run_id: str) -> None:
        held = self._held.pop(spark_run_id)
        self._held_count -= len(held)
        for waiting in held:
            self._emit(self._event_of(waiting.heard.kind, waiting.heard.at, waiting.body, None))

    def _event_of(
        self,
        kind: Kind,
        at: float,
        body: dict[str, Any],
        line: RunLine | None,
        *,
        repaired: bool = False,
    ) -> Event:
        return self._event(
            kind,
            at,
            body,
            query=line.known.query if line else None,
            run=line.known.run if line else None,
            spark_run_id=str(body["runId"]),
            batch=int(body["batchId"]) if kind is Kind.PROGRESS else None,
            repaired=repaired,
        )

    def _event(self, kind: Kind, at: float, body: dict[str, Any], **about: Any) -> Event:
        """Return an event of this driver; the outbox numbers it."""
        text, masked = _iso(at), self._mask(body)
        return Event(self._driver, self._epoch, seq=0, at=text, kind=kind, body=masked, **about)

    def _note_end(self, spark_run_id: str, body: dict[str, Any]) -> None:
        with self._ended:
            self._ends[spark_run_id] = body
            while len(self._ends) > _REMEMBERED_ENDS:
                self._ends.popitem(last=False)
            self._ended.notify_all()


def _iso(at: float) -> str:
    return (at_s(at) or datetime.now(UTC)).isoformat(timespec="milliseconds")
