"""Send heartbeats, and fetch batches that the bus did not deliver."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError

from listeners.spark.repair import ended_at, recent_executed
from listeners.spark.settings import TelemetrySettings
from listeners.spark.sorter import RecalledRun, RunLine, Sorter

logger = logging.getLogger(__name__)

_TICK_S = 0.2
_SHORTEST_RECALL_S = 0.25
_PRIVATE_RECALL_S = 15.0  # finds nothing, unless the private queue fails
_FALLBACK_GRACE_S = 3.0
_LAST_EVENTS_S = 3.0  # how long an ended run's events may still be in transit


class Pulse:
    """A thread that sends heartbeats and, when it is due, reads the batches each run remembers."""

    def __init__(
        self,
        *,
        jvm: Any,
        sorter: Sorter,
        settings: TelemetrySettings,
        private: bool,
        put: Callable[[RecalledRun], None],
        heartbeat: Callable[[], None],
        isolate_errors: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._jvm = jvm
        self._sorter = sorter
        self._settings = settings
        self._private = private
        self._grace_s = settings.grace_s if private else min(settings.grace_s, _FALLBACK_GRACE_S)
        self._put = put
        self._heartbeat = heartbeat
        self._isolate_errors = isolate_errors
        self._ended: dict[str, float] = {}  # Spark's run id -> monotonic time of its end
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry-pulse", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def run_ended(self, spark_run_id: str) -> None:
        """Read this run's remembered batches once more when its last events should be here."""
        self._ended.setdefault(spark_run_id, time.monotonic())

    def close(self, deadline_s: float) -> None:
        """Read every run's remembered batches one last time, then stop, within `deadline_s`."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(deadline_s)

    def _run(self) -> None:
        next_beat = 0.0
        while not self._closing.wait(_TICK_S):
            now = time.monotonic()
            for run in list(self._sorter.runs.values()):
                with self._isolate_errors(f"the memory of run {run.identity.spark_run_id}"):
                    self._look(run, now)
            if now >= next_beat:
                next_beat = now + self._settings.heartbeat_s
                self._beat()
        for run in list(self._sorter.runs.values()):
            if not run.done:
                with self._isolate_errors(f"the memory of run {run.identity.spark_run_id}"):
                    self._recall(run, final=True)
        self._beat()

    def _beat(self) -> None:
        try:
            self._heartbeat()
        except Exception:  # loop boundary: the next heartbeat may succeed
            logger.exception("a heartbeat could not be sent")

    def _look(self, run: RunLine, now: float) -> None:
        if run.done:
            return
        ended = self._ended.get(run.identity.spark_run_id)
        if ended is not None:
            is_terminated = self._sorter.terminated(run.identity.spark_run_id, 0) is not None
            if is_terminated or now - ended > _LAST_EVENTS_S:
                self._recall(run, final=True)
            return
        hole = run.batches.holes and now >= run.recalled_at + _SHORTEST_RECALL_S
        if hole or now >= run.recall_after:
            self._recall(run, final=False)

    def _recall(self, run: RunLine, *, final: bool) -> None:
        """Pass the query's remembered batches to the sorter; schedule the next read."""
        usual_s = _PRIVATE_RECALL_S if self._private else self._settings.repair_s
        run.recalled_at = time.monotonic()
        run.recall_after = run.recalled_at + usual_s
        try:
            remembered = recent_executed(self._jvm, run.identity.jquery)
        except (Py4JError, OSError, ValueError) as error:
            logger.debug("run %s could not be read back: %s", run.identity.spark_run_id, error)
            run.done = final
            return
        if len(remembered) > 1 and not self._private:
            run.recall_after = time.monotonic() + _share_of_memory_s(remembered, usual_s)
        overdue_at = None if final else time.time() - self._grace_s
        self._put(RecalledRun(run.identity.spark_run_id, remembered, overdue_at))
        if final:
            run.done = True
            run.identity = replace(run.identity, jquery=None)  # releases the query in the JVM
            self._ended.pop(run.identity.spark_run_id, None)


def _share_of_memory_s(remembered: list[dict[str, Any]], usual_s: float) -> float:
    """Return how long to wait at most, so that a fast query does not forget unread batches."""
    span_s = ended_at(remembered[-1]) - ended_at(remembered[0])
    return max(_SHORTEST_RECALL_S, min(usual_s, span_s / 3))
