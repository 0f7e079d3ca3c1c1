"""Follow a query that a script has started until it ends, like any other run.

By the time this begins, the query's checkpoint has been locked and Spark has accepted the query.
The control plane finds the query in `status.json` and creates its rows; until then, its status is
reported under `-number`.
"""

import logging
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from queries.domain.protocol import AssignmentEntry, FoundQuery, Want
from queries.runtime.checkpoints.locks import CheckpointLock
from queries.runtime.checkpoints.logs import CheckpointReader
from queries.runtime.code.stream_writers import Callbacks
from queries.runtime.run import DriverContext, QueryRun
from queries.runtime.status_report import now

logger = logging.getLogger("headgate.script")


class MetRun(QueryRun):
    """The run of a query whose start was intercepted."""

    def __init__(
        self,
        script_query: FoundQuery,
        context: DriverContext,
        *,
        epoch: int,
        lock: CheckpointLock,
        before: int | None,
        query: Any,
        frame: Any,
        callbacks: Callbacks,
    ) -> None:
        """`before` is the checkpoint's newest batch at the start; `epoch` is the driver's epoch."""
        self.found = script_query
        self._checkpoint_lock = lock
        self._newest_before = before
        self._query = query
        self._frame = frame
        self._adoption = threading.Lock()
        self._adopted = False
        self._ended = False  # telemetry must be notified once its rows exist
        entry = AssignmentEntry(
            query=0,
            name=script_query.name or script_query.identity,
            run=-script_query.number,
            epoch=epoch,
            spec={"kind": "script", "trigger": script_query.trigger},
            checkpoint=script_query.location,
            pool="",
            want=Want.RUN,
        )
        super().__init__(entry, context)
        self._callbacks = callbacks
        callbacks.returned = self._news.set

    def adopt(self, entry: AssignmentEntry) -> None:
        """Take over the keys of the rows that the control plane has created for the query."""
        with self._adoption:
            if self._adopted:
                return
            self._context.board.adopt(self.found.number, run=entry.run, query=entry.query)
            self.entry = replace(self.entry, run=entry.run, query=entry.query, epoch=entry.epoch)
            self._adopted = True
            jquery = self._query._jsq
            self._context.telemetry.query_started(
                query=entry.query,
                run=entry.run,
                spark_run_id=str(self._query.runId),
                jquery=jquery,
            )
            if self._ended:
                super()._read_last_progress(jquery)

    def stop_by_script(self) -> None:
        """Stop the query as the script's own `stop()` would."""
        with suppress(Exception):  # a hanging stop, or a stopped Spark, is detected elsewhere
            self._query._jsq.stop()

    @property
    def in_spark(self) -> bool:
        """Return whether Spark is still running the query."""
        return bool(self._query.isActive)

    # --- the steps of a run, with the start already done --------------------------------

    def _take(self) -> CheckpointLock:
        return self._checkpoint_lock

    def _before(self, checkpoint: CheckpointReader) -> int | None:
        return self._newest_before

    def _start(self, checkpoint: CheckpointReader) -> Any:
        query = self._query
        self._jquery = query._jsq
        self._building = False
        self._change(spark_run_id=str(query.runId), spark_query_id=str(query.id), started_at=now())
        look = partial(self._look_at_topics, self._frame, self._frame.sparkSession, checkpoint)
        try:
            look()
        except Exception as error:  # it is running: unknown topics are no reason to end it
            logger.warning("%s: could not get its topics: %s", self.entry.called, error)
        return query

    def _read_last_progress(self, jquery: Any) -> None:
        with self._adoption:
            self._ended = True
            if self._adopted:
                super()._read_last_progress(jquery)
