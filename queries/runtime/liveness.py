"""Detect signs of life from a running query: commits, idle triggers, its newest batch.

A commit is read from the checkpoint if that is cheap, otherwise from the query's own progress; an
idle trigger shows up as progress without an executed batch (trap 14). A continuous query reports no
progress: its continuous epochs are used instead.
"""

import json
import time
from functools import partial
from typing import Any

from queries.domain.failures.context import left_out
from queries.runtime.checkpoints.log_reports import LogReports
from queries.runtime.checkpoints.logs import CheckpointReader
from queries.runtime.continuous_epochs import Epochs
from queries.runtime.status_report import now

PROGRESS_S = 1.0  # between reads of the query's progress, one round trip each
UNPROVEN_S = 0.4  # the same, until something has shown that source and plan work


class ProgressTracker:
    """The signs of life that one run has shown so far."""

    def __init__(
        self,
        jquery: Any,
        checkpoint: CheckpointReader,
        before: int | None,
        epochs: Epochs | None = None,  # of a continuous query
        reports: LogReports | None = None,  # of a checkpoint that is not local
    ) -> None:
        self._jquery = jquery
        self._epochs = epochs
        self._checkpoint = checkpoint
        self._reports = reports
        self._working = False  # a batch was being executed at the last look
        self._before = before  # the checkpoint's newest commit when the run started
        self._committed = False
        self._idle = False
        self._looked = 0.0  # monotonic, time of the last look at the progress
        self._progress: dict[str, Any] | None = None  # of the newest executed batch
        self.last_batch: int | None = None  # the last batch committed in this run

    @property
    def proven(self) -> bool:
        """Return whether a commit, or a trigger without data, has shown that the query works."""
        return self._committed or self._idle

    def look(self) -> dict[str, Any]:
        """Return the changes in the run's status since the last check."""
        changes: dict[str, Any] = {}
        epochs = self._epochs.look() if self._epochs else []
        if epochs:
            self._progress = changes["last_progress"] = epochs[-1]
        batch = self._commit()
        if batch is not None and batch != self.last_batch:
            changes |= self._note_commit(batch)
        if time.monotonic() - self._looked >= (PROGRESS_S if self.proven else UNPROVEN_S):
            changes.update(self._look_at_progress())
        return changes

    def at_failure(self) -> dict[str, Any]:
        """Return the batch in flight, its offsets, and the last progress before that batch."""
        batch = left_out(self._checkpoint.in_flight, None)
        changes: dict[str, Any] = {"failed_batch": batch}
        if batch is not None:
            changes["failed_offsets"] = left_out(partial(self._checkpoint.offsets, batch), {})
        left_out(self._look_at_progress, {})
        if self._progress is not None:
            changes["last_progress"] = self._progress
        return changes

    def _commit(self) -> int | None:
        if self._epochs is not None:
            batch = self._epochs.last
            return None if batch == self._before else batch
        if not self._checkpoint.local:
            return self.last_batch  # updated by `_look_at_progress`
        batch = self._checkpoint.last_commit()
        return None if batch is None or batch == self._before else batch

    def _look_at_progress(self) -> dict[str, Any]:
        self._looked = time.monotonic()
        if self._reports is not None:
            self._look_for_a_batch(self._reports)
        java_progress = self._jquery.lastProgress()
        if java_progress is None:
            return {}
        progress = json.loads(java_progress.json())
        if "addBatch" not in progress.get("durationMs", {}):
            if self._idle or self._committed:
                return {}
            self._idle = True
            return {"first_idle_at": now()}
        if progress == self._progress:
            return {}
        self._progress = progress
        changes: dict[str, Any] = {"last_progress": progress}
        if not self._checkpoint.local:
            changes |= self._note_commit(progress["batchId"])
        return changes

    def _look_for_a_batch(self, reports: LogReports) -> None:
        """Notice that a batch has started, so that it is reported if it kills the driver."""
        status = self._jquery.status()
        working = bool(status.isTriggerActive() and status.isDataAvailable())
        if working and not self._working:
            reports.request_report()
        self._working = working

    def _note_commit(self, batch: int) -> dict[str, Any]:
        self.last_batch, at = batch, now()
        if self._reports is not None:
            self._reports.request_report()
        first = {} if self._committed else {"first_commit_at": at}
        self._committed = True
        return {"last_batch": batch, "last_commit_at": at, **first}
