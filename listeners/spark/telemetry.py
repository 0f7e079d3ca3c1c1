"""Report everything about a driver's queries to the control plane, through one object.

Four activities run in parallel: Spark's bus calls the listener, which enqueues; the *sorter* thread
names and numbers events and spools them; the outbox's *sender* sends them to Redis; the *pulse*
thread sends heartbeats and fetches batches that the bus did not deliver. None of them can delay a
query.
"""

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from headgate_ground import spool
from headgate_ground.wire import DriverTrouble, EventKind, HeartbeatBody, WireEvent
from listeners.spark import listener
from listeners.spark.heartbeat import Pulse, QueryPulses, ThreadDumps, jvm_alive
from listeners.spark.listener import ListenerRefused
from listeners.spark.outbox import Outbox, TelemetrySettings
from listeners.spark.slow_batches import SlowBatches
from listeners.spark.sorter import DriverMessage, RecalledRun, RunKnown, Sorter
from listeners.spark.task_times import TaskTimes

__all__ = ["ListenerRefused", "Telemetry"]
logger = logging.getLogger(__name__)

LAST_SEQ = "last_seq"  # file in the driver's directory, read by the shim
_INBOX_LIMIT = 50_000  # messages waiting for the sorter; beyond that, events count as lost

#: Most driver troubles reported in a heartbeat.
_MAX_TROUBLES = 20

Message = listener.BusEvent | RunKnown | RecalledRun | DriverMessage


class Telemetry:
    """The telemetry of one driver; every method returns immediately unless it says otherwise."""

    def __init__(
        self,
        *,
        driver: int,
        epoch: int,
        directory: Path,
        redis_url: str,
        stream: str,
        key: bytes,
        settings: dict[str, Any],
        mask: Callable[[Any], Any],
        isolate_errors: Callable[[str], AbstractContextManager[object]] = nullcontext,
        troubles: Callable[[], Iterable[tuple[str, str, int]]] = tuple,
        revocation: str = "",
        revoked: Callable[[], object] = lambda: None,
    ) -> None:
        """`mask` removes the driver's secrets from an event's JSON before `key` seals it.

        `isolate_errors` guards the work for one run; `troubles` returns the elements that the
        driver currently skips: the subject, the cause, and how often in a row. `revocation` and
        `revoked` are passed to the outbox.
        """
        self._isolate_errors = isolate_errors
        self._troubles = troubles
        self._settings = TelemetrySettings.read(settings)
        self._directory = directory
        self._outbox = Outbox(
            folder=directory / spool.FOLDER,
            redis_url=redis_url,
            stream=stream,
            settings=self._settings,
            key=key,
            revocation=revocation,
            revoked=revoked,
        )
        self._sorter = Sorter(
            driver=driver, epoch=epoch, settings=self._settings, emit=self._emit, mask=mask
        )
        self._inbox: SimpleQueue[Message | None] = SimpleQueue()
        self._overflow = 0
        self._sorting = threading.Thread(target=self._sort, name="telemetry-sorter", daemon=True)
        self._users: dict[str, listener.TimedListener] = {}
        self._spark: Any = None
        self._java: Any = None
        self._bus: Any = None  # our own, on the private queue
        self._pulse: Pulse | None = None
        self._query_pulses: QueryPulses | None = None
        self._task_times: TaskTimes | None = None
        self._slow_batches: SlowBatches | None = None
        self._thread_dumps: ThreadDumps | None = None
        self._counters: dict[str, listener.BusCounters] = {}
        self.mode = "fallback"  # "private" once our own queue is confirmed to exist

    # --- lifecycle --------------------------------------------------------------------------
    def attach(self, spark: Any) -> None:
        """Attach to a private queue of the bus, or fall back to every session; start sending."""
        self._spark = spark
        self._java = listener.java_listener(spark, listener.BusListener(self._enqueue))
        self._query_pulses = QueryPulses(spark)
        self._task_times = TaskTimes(spark)
        self._slow_batches = SlowBatches(spark, self._task_times)
        self._thread_dumps = ThreadDumps(spark)
        self._counters = {name: listener.BusCounters(spark, name) for name in ("streams", "ours")}
        if not self._settings.force_fallback:
            capacity = self._settings.queue_capacity
            self._bus = listener.attach_private(spark, self._java, capacity=capacity)
        if self._bus is not None:
            self.mode = "private"
        else:
            listener.attach_to_session(spark, self._java)
        logger.info("telemetry is listening on %s", _MODES[self.mode])
        self._outbox.start()
        self._sorting.start()
        self._pulse = Pulse(
            jvm=spark.sparkContext._jvm,
            sorter=self._sorter,
            settings=self._settings,
            private=self.mode == "private",
            put=self._inbox.put,
            heartbeat=self.heartbeat,
            isolate_errors=self._isolate_errors,
        )
        self._pulse.start()

    def session_opened(self, session: Any, user_listeners: tuple[str, ...]) -> None:
        """Attach the application's own listeners (and ours in the fallback) to a session.

        Raises ListenerRefused, which names the listener and the reason, before attaching any of
        them.
        """
        loaded = [self._user_listener(name) for name in user_listeners]
        if self.mode == "fallback":
            listener.attach_to_session(session, self._java)
        for user in loaded:
            session.streams.addListener(user)

    def session_closed(self, session: Any) -> None:
        """Remove the session's bus from the `streams` queue."""
        listener.remove_session_bus(session)

    def detach(self) -> None:
        """Stop receiving, if the JVM continues without this telemetry; only for a private queue."""
        if self._bus is not None:
            listener.remove_bus(self._spark, self._bus)

    def close(self, deadline_s: float) -> int:
        """Recall, sort and send the remaining events within `deadline_s`; return the last number.

        The number is also written to DIRECTORY/last_seq, from which the shim reports it.
        """
        end = time.monotonic() + deadline_s
        if self._pulse is not None:
            self._pulse.close(deadline_s / 3)
        self._inbox.put(None)
        if self._sorting.is_alive():
            self._sorting.join(max(0.1, (end - time.monotonic()) / 2))
        last = self._outbox.close(max(0.1, end - time.monotonic()))
        _replace(self._directory / LAST_SEQ, f"{last}\n")
        return last

    # --- calls from the runtime -------------------------------------------------------------
    def query_started(self, *, query: int, run: int, spark_run_id: str, jquery: Any) -> None:
        """Name the query and run of a Spark run id; the call may come after Spark's own event."""
        self._inbox.put(RunKnown(query, run, spark_run_id, jquery))

    def query_ended(self, *, query: int, run: int, spark_run_id: str, jquery: Any) -> None:
        """Record the end of a run, so that its remembered batches are read once more, soon."""
        self._inbox.put(RunKnown(query, run, spark_run_id, jquery))
        if self._pulse is not None:
            self._pulse.run_ended(spark_run_id)

    def start_failed(self, *, query: int, run: int, error_class: str, message: str) -> None:
        """Report an error that was raised in `start()`, which Spark itself does not report."""
        body = {"error_class": error_class, "message": _sound(message)}
        self._inbox.put(DriverMessage(EventKind.START_ERROR, body, query, run))

    def request_dump(self, run: int, requested_at: str) -> None:
        """Take a thread dump for a run with the next heartbeat, once for each time of request."""
        if self._thread_dumps is not None:
            self._thread_dumps.request(run, requested_at)

    def status_changed(self, *, query: int, run: int, state: str) -> None:
        """Report that a run's line in status.json has changed."""
        self._inbox.put(DriverMessage(EventKind.STATUS, {"state": state}, query, run))

    def driver_changed(self) -> None:
        """Report that the driver's own part of status.json has changed."""
        self._inbox.put(DriverMessage(EventKind.STATUS, {"state": ""}, None, None))

    def epoch_committed(self, progress: dict[str, Any]) -> None:
        """Report a continuous epoch, which Spark itself does not report."""
        text = json.dumps({"progress": progress})
        self._enqueue(listener.BusEvent(EventKind.PROGRESS, text, time.time()))

    def terminated(self, spark_run_id: str, timeout_s: float) -> dict[str, Any] | None:
        """Wait for a run's Terminated event from Spark and return it; None if it is not in time."""
        return self._sorter.terminated(spark_run_id, timeout_s)

    def heartbeat(self) -> None:
        """Send one heartbeat: Spark's counters, listener times, our own figures."""
        used_mb, max_mb = listener.jvm_heap_mb(self._spark)
        missing, repaired = self._sorter.losses()
        followed = [line.identity for line in list(self._sorter.runs.values()) if not line.done]
        beat = HeartbeatBody(
            mode=self.mode,
            streams=self._counters["streams"].read(),
            ours=self._counters["ours"].read() if self.mode == "private" else None,
            listeners=tuple(user.times() for user in list(self._users.values())),
            last_seq=self._outbox.last_seq,
            unsent=self._outbox.unsent + self._inbox.qsize(),
            outbox_dropped=self._outbox.dropped + self._overflow,
            missing_batches=missing,
            repaired=repaired,
            python_rss_mb=listener.python_rss_mb(),
            jvm_heap_used_mb=used_mb,
            jvm_heap_max_mb=max_mb,
            jvm_alive=jvm_alive(self._spark),
            queries=self._query_pulses.look(followed) if self._query_pulses else (),
            task_times=self._task_times.look(followed) if self._task_times else (),
            troubles=tuple(
                DriverTrouble(_sound(about)[:120], _sound(cause)[:300], times)
                for about, cause, times in islice(self._troubles(), _MAX_TROUBLES)
            ),
        )
        self._inbox.put(DriverMessage(EventKind.HEARTBEAT, beat.body()))
        if self._slow_batches and (slow := self._slow_batches.look()):
            self._inbox.put(DriverMessage(EventKind.SLOW_BATCH, slow.body, slow.query, slow.run))
        if self._thread_dumps and (dump := self._thread_dumps.look(followed, beat.queries)):
            self._inbox.put(DriverMessage(EventKind.THREAD_DUMP, dump.body, dump.query, dump.run))

    # --- inside ---------------------------------------------------------------------------
    def _enqueue(self, event: listener.BusEvent) -> None:
        """Enqueue a message; Spark's bus calls this, so it must not do anything else."""
        if self._inbox.qsize() >= _INBOX_LIMIT:
            self._overflow += 1
        else:
            self._inbox.put(event)

    def _emit(self, event: WireEvent) -> None:
        self._outbox.add(event)
        if self._slow_batches and self._thread_dumps:
            self._slow_batches.note(event)
            self._thread_dumps.note(event)

    def _sort(self) -> None:
        while True:
            try:
                message = self._inbox.get(timeout=1.0)
            except Empty:
                with self._isolate_errors("events that were held back"):
                    self._sorter.release_waiting(time.monotonic())
                continue
            if message is None:
                with self._isolate_errors("events that were held back"):
                    self._sorter.release_waiting(math.inf)
                return
            if self._overflow:
                lost, self._overflow = self._overflow, 0
                self._outbox.skip(lost)
            try:
                self._sorter.take(message)
            except Exception:  # loop boundary: one odd message must not end all telemetry
                logger.exception("an event could not be sorted and is counted as lost")
                self._outbox.skip(1)

    def _user_listener(self, name: str) -> listener.TimedListener:
        if name not in self._users:
            self._users[name] = listener.load(name, slow_call_ms=self._settings.slow_call_ms)
        return self._users[name]


_MODES = {"private": "a private queue", "fallback": "every session (fallback, with repair)"}


def _sound(text: str) -> str:
    """Return a JSON-safe string: a path in a message may contain undecodable bytes."""
    return text.encode(errors="replace").decode()


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".tmp")
    with open(beside, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
