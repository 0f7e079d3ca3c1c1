"""Turn received messages into events, each exactly once, and fetch those that were not delivered.

Everything runs on one thread, which handles one message after the other, so no lock is needed.

A query keeps its last progress objects (99 by default) regardless of what the bus drops. A run's
batch ids increase by one, so a hole between two ids proves a loss; a batch that the query remembers
but that the bus has not delivered for a while also counts as missing.
"""

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from headgate_ground import spark_names
from headgate_ground.tolerant import at_s, count, time_of
from headgate_ground.wire import EventKind, WireEvent
from listeners.spark.listener import BusEvent
from listeners.spark.outbox import TelemetrySettings

Progress = dict[str, Any]

_REMEMBERED = 5_000  # batch ids stored per run; more than any query remembers
_WIDEST_HOLE = 100_000  # ids of a hole that are tracked individually


@dataclass(slots=True)
class RunBatches:
    """A run's reported and missing batches."""

    highest: int | None = None
    missing: int = 0  # all that were ever missing, including repaired ones
    repaired: int = 0
    holes: set[int] = field(default_factory=set)  # missing and not given up
    _reported: set[int] = field(default_factory=set)

    def note_reported(self, batch: int) -> bool:
        """Record a batch from the bus; return False if it was reported before."""
        if batch in self._reported:
            return False
        if self.highest is not None and batch > self.highest + 1:
            hole = range(max(self.highest + 1, batch - _WIDEST_HOLE), batch)
            self.holes.update(hole)
            self.missing += batch - self.highest - 1
        if batch in self.holes:  # late, but delivered
            self.holes.discard(batch)
            self.missing -= 1
        self._note(batch)
        return True

    def recall(
        self, remembered_progress: list[Progress], *, overdue_at: float | None
    ) -> list[Progress]:
        """Return the query's remembered batches that still must be reported, oldest first.

        A batch newer than any from the bus is left to the bus unless it ended before `overdue_at`
        (seconds since 1970); None means that the run has ended and the bus will not deliver
        anything else. Holes older than the oldest remembered batch are given up, but still count as
        missing.
        """
        unreported_progress = []
        for progress in remembered_progress:
            batch = int(progress["batchId"])
            if batch in self._reported:
                continue
            newest = self.highest is None or batch > self.highest
            if newest and overdue_at is not None and ended_at(progress) > overdue_at:
                continue
            if batch not in self.holes:
                self.missing += 1
            self.holes.discard(batch)
            self.repaired += 1
            unreported_progress.append(progress)
        for progress in unreported_progress:
            self._note(int(progress["batchId"]))
        if remembered_progress:
            oldest = min(int(progress["batchId"]) for progress in remembered_progress)
            self.holes = {batch for batch in self.holes if batch >= oldest}
        return sorted(unreported_progress, key=lambda progress: int(progress["batchId"]))

    def _note(self, batch: int) -> None:
        self._reported.add(batch)
        self.highest = batch if self.highest is None else max(self.highest, batch)
        if len(self._reported) > 2 * _REMEMBERED:
            self._reported = {
                number for number in self._reported if number > self.highest - _REMEMBERED
            }


def executed(progress: Progress) -> bool:
    """Return whether a batch was executed: triggers without data leave an entry without a batch."""
    return "addBatch" in (progress.get("durationMs") or {})


def ended_at(progress: Progress) -> float:
    """Return the time at which a batch ended, in seconds since 1970."""
    began = time_of(progress.get("timestamp")) or datetime.now(UTC)
    return began.timestamp() + (count(progress.get("batchDuration")) or 0) / 1000


def recent_executed(jvm: Any, jquery: Any) -> list[Progress]:
    """Return a query's remembered executed batches, oldest first, in one round trip.

    Also works after the query has ended. Scala prints the array as `Array(JSON, JSON, …)`.
    """
    text = jvm.scala.runtime.ScalaRunTime.stringOf(jquery.recentProgress())
    entries: list[Progress] = json.loads(f"[{text[len('Array(') : -len(')')]}]")
    return [spark_names.complete_progress(entry) for entry in entries if executed(entry)]


_MOST_RUNS = 200  # per driver; the oldest ended ones are dropped first
_REMEMBERED_ENDS = 1_000  # Terminated events remembered for `terminated`


@dataclass(frozen=True, slots=True)
class RunKnown:
    """The runtime's message with the query and run for one of Spark's run ids."""

    query: int
    run: int
    spark_run_id: str
    jquery: Any


@dataclass(frozen=True, slots=True)
class RecalledRun:
    """The batches that a query remembers."""

    spark_run_id: str
    remembered: list[Progress]
    overdue_at: float | None  # see RunBatches.recall


@dataclass(frozen=True, slots=True)
class DriverMessage:
    """A message from the driver itself."""

    kind: EventKind
    body: dict[str, Any]
    query: int | None = None
    run: int | None = None
    at: float = field(default_factory=time.time)


@dataclass(slots=True)
class RunLine:
    """A run, as known to telemetry."""

    identity: RunKnown
    batches: RunBatches = field(default_factory=RunBatches)
    recalled_at: float = 0.0  # monotonic
    recall_after: float = 0.0  # monotonic
    done: bool = False  # ended and recalled for the last time


@dataclass(slots=True)
class _WaitingEvent:
    since: float  # monotonic
    event: BusEvent
    body: dict[str, Any]


class Sorter:
    """The thread's state: runs by Spark's run id, held events, ended runs."""

    def __init__(
        self,
        *,
        driver: int,
        epoch: int,
        settings: TelemetrySettings,
        emit: Callable[[WireEvent], Any],
        mask: Callable[[Any], Any],
    ) -> None:
        self._driver = driver
        self._epoch = epoch
        self._settings = settings
        self._emit = emit
        self._mask = mask
        self.runs: dict[str, RunLine] = {}
        self._forgotten = (0, 0)  # missing and repaired batches of forgotten runs
        self._waiting: dict[str, list[_WaitingEvent]] = {}
        self._waiting_count = 0
        self._ends: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._ended = threading.Condition()

    def take(self, message: BusEvent | RunKnown | RecalledRun | DriverMessage) -> None:
        """Turn one message into its events; there may be none or several."""
        match message:
            case BusEvent():
                self._hear(message)
            case RunKnown():
                self._know(message)
            case RecalledRun():
                self._recall(message)
            case DriverMessage():
                self._emit_message(message)

    def release_waiting(self, now: float) -> None:
        """Release the held events whose run did not become known in time.

        `now` is monotonic; infinity releases everything, for a driver that is exiting.
        """
        for spark_run_id in list(self._waiting):
            if now - self._waiting[spark_run_id][0].since > self._settings.hold_s:
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
    def _hear(self, event: BusEvent) -> None:
        body = orjson.loads(event.text)
        if event.kind is EventKind.PROGRESS:
            body = spark_names.complete_progress(body["progress"])
        spark_run_id = str(body["runId"])
        if event.kind is EventKind.TERMINATED:
            self._note_end(spark_run_id, body)
        if spark_run_id in self.runs:
            self._emit_event(self.runs[spark_run_id], event, body)
            return
        self._waiting.setdefault(spark_run_id, []).append(
            _WaitingEvent(time.monotonic(), event, body)
        )
        self._waiting_count += 1
        if self._waiting_count > self._settings.hold_events:
            self._release(next(iter(self._waiting)))

    def _know(self, identity: RunKnown) -> None:
        line = self.runs.setdefault(identity.spark_run_id, RunLine(identity))
        waiting_events = self._waiting.pop(identity.spark_run_id, [])
        self._waiting_count -= len(waiting_events)
        for waiting in waiting_events:
            self._emit_event(line, waiting.event, waiting.body)
        if len(self.runs) > _MOST_RUNS:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        for spark_run_id, line in self.runs.items():
            if line.done:
                missing, repaired = self._forgotten
                batches = self.runs.pop(spark_run_id).batches
                self._forgotten = (missing + batches.missing, repaired + batches.repaired)
                return

    def _recall(self, recalled: RecalledRun) -> None:
        line = self.runs.get(recalled.spark_run_id)
        if line is None:
            return
        unreported_progress = line.batches.recall(
            recalled.remembered, overdue_at=recalled.overdue_at
        )
        for progress in unreported_progress:
            self._emit(
                self._event_of(EventKind.PROGRESS, time.time(), progress, line, repaired=True)
            )

    def _emit_message(self, message: DriverMessage) -> None:
        self._emit(
            self._event(
                message.kind, message.at, message.body, query=message.query, run=message.run
            )
        )

    # --- events ---------------------------------------------------------------------------
    def _emit_event(self, line: RunLine, event: BusEvent, body: dict[str, Any]) -> None:
        if event.kind is EventKind.PROGRESS and not line.batches.note_reported(
            int(body["batchId"])
        ):
            return
        self._emit(self._event_of(event.kind, event.at, body, line))

    def _release(self, spark_run_id: str) -> None:
        waiting_events = self._waiting.pop(spark_run_id)
        self._waiting_count -= len(waiting_events)
        for waiting in waiting_events:
            self._emit(self._event_of(waiting.event.kind, waiting.event.at, waiting.body, None))

    def _event_of(
        self,
        kind: EventKind,
        at: float,
        body: dict[str, Any],
        line: RunLine | None,
        *,
        repaired: bool = False,
    ) -> WireEvent:
        return self._event(
            kind,
            at,
            body,
            query=line.identity.query if line else None,
            run=line.identity.run if line else None,
            spark_run_id=str(body["runId"]),
            batch=int(body["batchId"]) if kind is EventKind.PROGRESS else None,
            repaired=repaired,
        )

    def _event(self, kind: EventKind, at: float, body: dict[str, Any], **about: Any) -> WireEvent:
        """Return an event of this driver; the outbox numbers it."""
        text, masked = _iso(at), self._mask(body)
        return WireEvent(self._driver, self._epoch, seq=0, at=text, kind=kind, body=masked, **about)

    def _note_end(self, spark_run_id: str, body: dict[str, Any]) -> None:
        with self._ended:
            self._ends[spark_run_id] = body
            while len(self._ends) > _REMEMBERED_ENDS:
                self._ends.popitem(last=False)
            self._ended.notify_all()


def _iso(at: float) -> str:
    return (at_s(at) or datetime.now(UTC)).isoformat(timespec="milliseconds")
