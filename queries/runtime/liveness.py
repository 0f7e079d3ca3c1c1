"""Detect signs of life from a query: progress of its start, commits, idle triggers, epochs.

A driver's processor time says nothing about one of its starts: its other queries use it too. So
only the thread that builds the query counts, in Python and in the JVM, and the steps of the run.

A commit is read from the checkpoint if that is cheap, otherwise from the query's own progress; an
idle trigger shows up as progress without an executed batch (trap 14). A continuous query reports no
progress: its continuous epochs are used instead.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from listeners.spark.telemetry import Telemetry
from queries.domain.failures.error_text import left_out
from queries.domain.supervision.progress import LEAST_CPU_S
from queries.domain.triggers.continuous_epochs import Epoch, QueryIdentity, progress_of
from queries.runtime.checkpoints.logs import CheckpointReader, LogReports
from queries.runtime.process import stat_cpu_s
from queries.runtime.status_report import now

#: Seconds between looks at a checkpoint that is not local: each costs round trips.
REMOTE_LOOK_S = 1.0
#: Maximum continuous epochs reported per look; the next looks report the rest.
AT_MOST = 50


class Epochs:
    """What one run of a continuous query has committed so far."""

    def __init__(
        self,
        checkpoint: CheckpointReader,
        of: QueryIdentity,
        *,
        before: int | None,
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self._checkpoint = checkpoint
        self._of = of
        self._report = report
        self._looked = 0.0  # monotonic
        self._began = datetime.now(UTC)  # start of the current epoch
        self.last = before  # the newest epoch reported, or committed before the run

    def look(self) -> list[dict[str, Any]]:
        """Report the continuous epochs committed since the last check; return their progress."""
        if not self._checkpoint.local:
            if time.monotonic() - self._looked < REMOTE_LOOK_S:
                return []
            self._looked = time.monotonic()
        reports = []
        for number in self._checkpoint.committed_after(self.last)[:AT_MOST]:
            progress = self._progress(number)
            self._report(progress)
            reports.append(progress)
        return reports

    def _progress(self, number: int) -> dict[str, Any]:
        committed = self._checkpoint.written_at(f"commits/{number}") or datetime.now(UTC)
        offsets = self._checkpoint.offsets(number)
        epoch = Epoch(
            number=number,
            began=min(self._began, committed),
            committed=committed,
            start={partition: offset_range["start"] for partition, offset_range in offsets.items()},
            end={partition: offset_range["end"] for partition, offset_range in offsets.items()},
        )
        self.last, self._began = number, committed
        return progress_of(epoch, self._of)


def of_continuous(
    query: Any,
    spec: dict[str, Any],
    name: str,
    checkpoint: CheckpointReader,
    *,
    before: int | None,
    telemetry: Telemetry,
) -> Epochs | None:
    """Return the reporter that replaces Spark's for a continuous query; None for other triggers.

    `before` is the newest commit from before the run.
    """
    if spec.get("trigger", {}).get("kind") != "continuous":
        return None
    named = QueryIdentity(
        query_id=str(query.id),
        run_id=str(query.runId),
        name=name,
        source=", ".join(str(source["name"]) for source in spec.get("sources", ())),
        sink=str((spec.get("sink") or {}).get("format", "")),
    )
    return Epochs(checkpoint, named, before=before, report=telemetry.epoch_committed)


_THREADS = Path("/proc/self/task")
#: Seconds between two questions to the JVM.
_READ_JVM_EVERY_S = 5.0


class StartProgress:
    """When a start last advanced, on the monotonic clock."""

    def __init__(self, report: Callable[[], None]) -> None:
        """`report` is called whenever the start has advanced, from any thread."""
        self.began_at = self.advanced_at = time.monotonic()
        self._report = report
        self._used = 0.0  # when it last advanced
        self._jvm: Any = None
        self._jvm_thread = 0
        self._jvm_used, self._jvm_read_at = 0.0, 0.0

    def begin_at(self, at: float) -> None:
        """Count from a later time: the start has waited until then."""
        self.began_at = self.advanced_at = at

    def learn_jvm_thread(self, jvm: Any) -> None:
        """Note the JVM's thread for the calling thread; without it, only Python's is measured."""
        if jvm is not None:
            number = left_out(lambda: int(jvm.java.lang.Thread.currentThread().getId()), 0)
            self._jvm, self._jvm_thread = jvm, number

    def step(self) -> None:
        """Note that a step has ended."""
        self.advanced_at = time.monotonic()
        self._report()

    def look(self, thread: int | None) -> None:
        """Note whether the start has used processor time; `thread` is the kernel's thread ID."""
        # `time.pthread_getcpuclockid` may crash the process if the thread ends meanwhile.
        cpu_s = stat_cpu_s(_THREADS / str(thread) / "stat") + self._in_jvm()
        if cpu_s >= self._used + LEAST_CPU_S:
            self._used = cpu_s
            self.step()

    def _in_jvm(self) -> float:
        now = time.monotonic()
        if self._jvm_thread and now - self._jvm_read_at >= _READ_JVM_EVERY_S:
            self._jvm_read_at = now
            beans = self._jvm.java.lang.management.ManagementFactory
            cpu_ns = left_out(lambda: beans.getThreadMXBean().getThreadCpuTime(self._jvm_thread), 0)
            self._jvm_used = max(self._jvm_used, int(cpu_ns) / 1e9)
        return self._jvm_used


PROGRESS_S = 1.0  # between reads of the query's progress, one round trip each
UNPROVEN_S = 0.4  # the same, until something has shown that source and plan work


class ProgressTracker:
    """The signs of life of one run so far."""

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
