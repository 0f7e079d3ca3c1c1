"""Collect evidence on slow batches from Spark's status store, while it still has their stages.

A pass runs in the telemetry's own thread after a heartbeat, for at most one batch in `EVERY_S`. It
reads the stages that ended since the batch began, and two tasks each of the longest ones.
"""

import logging
import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from statistics import median
from time import monotonic
from typing import Any

from py4j.protocol import Py4JError

from headgate_ground.tolerant import count, time_of
from headgate_ground.wire import EventKind, WireEvent
from listeners.spark.task_times import TaskTimes

logger = logging.getLogger(__name__)

EVERY_S = 10.0  # at most one batch
#: A batch is slow if it took at least this long and twice the median, or if its run has not been
#: explained for a while: a query can also be slow in every batch.
SLOW_MS, SLOW_TIMES, AGAIN_S = 1_000, 2.0, 600.0
_REMEMBERED, _FEWEST = 50, 5  # batches whose median counts
_MOST_RUNS = 200
_MOST_STAGES, _MOST_SAMPLED = 20, 5  # of one batch: reported, and with their tasks
_MOST_JOBS = 20

_BATCH = re.compile(r"^batch = (\d+)$", re.MULTILINE)
#: Spark's SQL metrics of Python (PythonSQLMetrics), without the start of workers.
_PYTHON = re.compile(r"time to (?:run|execute) Python")
#: A formatted timing (Spark: SQLMetrics.stringValue): the total comes first on the last line.
_TIMING = re.compile(r"([\d.,]+) (ms|s|m|h)\b")
_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


@dataclass(slots=True)
class _Batches:
    took: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    looked: float | None = None  # monotonic


@dataclass(frozen=True, slots=True)
class SlowBatchReport:
    """The evidence on one slow batch, as the body of an event."""

    query: int
    run: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Slow:
    event: WireEvent
    took: int
    median: int | None


class SlowBatches:
    """Remembers the slowest batch since the last pass."""

    def __init__(self, spark: Any, task_times: TaskTimes) -> None:
        """`task_times` reads the status store's rows."""
        self._context = spark.sparkContext
        self._spark = spark
        self._store = task_times
        self._runs: OrderedDict[int, _Batches] = OrderedDict()
        self._slowest: _Slow | None = None
        self._looked = -EVERY_S

    def note(self, event: WireEvent) -> None:
        """Compare a batch with those before it; cheap, because the sorter calls this."""
        took = count(event.body.get("batchDuration"))
        if event.kind is not EventKind.PROGRESS or event.run is None or took is None:
            return
        batches = self._runs.setdefault(event.run, _Batches())
        while len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)
        usual = int(median(batches.took)) if len(batches.took) >= _FEWEST else None
        batches.took.append(took)
        unusual = usual is not None and took >= SLOW_TIMES * usual
        overdue = batches.looked is None or monotonic() - batches.looked > AGAIN_S
        if took < SLOW_MS or not (unusual or overdue):
            return
        if self._slowest is None or took > self._slowest.took:
            self._slowest = _Slow(event, took, usual)

    def look(self) -> SlowBatchReport | None:
        """Return the evidence on the slowest batch; None if there is none or a pass is not due."""
        slow = self._slowest
        if slow is None or monotonic() - self._looked < EVERY_S:
            return None
        self._looked, self._slowest = monotonic(), None
        event = slow.event
        assert event.query is not None
        assert event.run is not None
        if batches := self._runs.get(event.run):
            batches.looked = self._looked
        try:
            evidence = self.evidence(event.body)
        except (Py4JError, OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("could not read the stages of a slow batch: %s", error)
            return None
        body = {"batch": event.batch, "took_ms": slow.took, "median_ms": slow.median, **evidence}
        return SlowBatchReport(event.query, event.run, body)

    def evidence(self, progress: dict[str, Any]) -> dict[str, Any]:
        """Return the stages, cores and Python time of a batch by its progress.

        `stages` is None if Spark no longer has them.
        """
        began = time_of(progress.get("timestamp"))
        since = 2**31 if began is None else int(began.timestamp() * 1000)
        rows = [row for row in self._store.ended_since(since) if _is_of(row, progress)]
        ran = [row for row in rows if row["info"]["submissionTime"] and row["info"]["numTasks"]]
        longest = sorted(ran, key=lambda row: -_wall(row["info"]))[:_MOST_STAGES]
        jobs = sorted({job for row in ran for job in row.get("jobIds") or ()})[-_MOST_JOBS:]
        tasks = "addBatch" in (progress.get("durationMs") or {})
        return {
            "stages": [
                self._stage(row["info"], sampled=index < _MOST_SAMPLED)
                for index, row in enumerate(longest)
            ]
            if longest or not tasks
            else None,
            "cores": self._context.defaultParallelism,
            "python_ms": self._python_ms(jobs),
        }

    def _stage(self, info: dict[str, Any], *, sampled: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "stage": info["stageId"],
            "tasks": info["numTasks"],
            "submitted": info["submissionTime"],
            "first_task": info["firstTaskLaunchedTime"] or info["completionTime"],
            "ended": info["completionTime"],
            "run_ms": info["executorRunTime"],
            "gc_ms": info["jvmGcTime"],
            "spilled_bytes": info["memoryBytesSpilled"],
            "fetch_ms": info["shuffleFetchWaitTime"],
            "write_ms": info["shuffleWriteTime"] // 1_000_000,  # Spark: ns
            "shuffle_rows": info["shuffleReadRecords"],
            "input_rows": info["inputRecords"],
            "bytes": info["inputBytes"] + info["shuffleReadBytes"],
        }
        if not sampled:
            return body
        longest = self._task(info, 0)
        half = self._task(info, info["numTasks"] // 2)
        metrics = longest.get("taskMetrics") or {}
        body["longest_ms"] = metrics.get("executorRunTime") or 0
        body["median_ms"] = (half.get("taskMetrics") or {}).get("executorRunTime") or 0
        read = metrics.get("inputMetrics") or {}
        fetched = metrics.get("shuffleReadMetrics") or {}
        body["longest_rows"] = read.get("recordsRead", 0) + fetched.get("recordsRead", 0)
        body["longest_bytes"] = read.get("bytesRead", 0) + sum(
            fetched.get(name, 0) for name in ("remoteBytesRead", "localBytesRead")
        )
        body["longest_executor"] = longest.get("executorId") or ""
        body["longest_host"] = longest.get("host") or ""
        return body

    def _task(self, info: dict[str, Any], rank: int) -> dict[str, Any]:
        """Return a stage's task by its place in the order of run time, longest first."""
        jvm = self._context._jvm
        tasks = (
            self._context._jsc.sc()
            .statusStore()
            .taskList(
                info["stageId"],
                info["attemptId"],
                rank,
                1,
                jvm.org.apache.spark.status.api.v1.TaskSorting.DECREASING_RUNTIME,
                jvm.java.util.List.of(),
            )
        )
        rows: list[dict[str, Any]] = self._store.json_of(tasks)
        return rows[0] if rows else {}

    def _python_ms(self, jobs: list[int]) -> int:
        """Return the time of Python functions in these jobs, summed over tasks."""
        executions = {
            number for job in jobs if (number := self._store.execution_of(job)) is not None
        }
        sql = self._spark._jsparkSession.sharedState().statusStore()
        total = 0.0
        for number in sorted(executions):
            execution = sql.execution(number)
            if execution.isEmpty():
                continue
            named = self._store.json_of(execution.get().metrics())
            wanted = {
                str(metric["accumulatorId"]) for metric in named if _PYTHON.search(metric["name"])
            }
            if wanted:
                values = self._store.json_of(sql.executionMetrics(number))
                total += sum(timing_ms(values.get(metric_id, "")) for metric_id in wanted)
        return round(total)


def timing_ms(text: str) -> float:
    """Return the total in a timing as Spark formats it, in milliseconds; 0 without one."""
    match = _TIMING.search(text.rsplit("\n", 1)[-1])
    return float(match[1].replace(",", "")) * _MS[match[2]] if match else 0.0


def _is_of(row: dict[str, Any], progress: dict[str, Any]) -> bool:
    """Return whether a stage belongs to a batch, by its job's description."""
    about = row["info"].get("description") or ""
    return str(progress.get("runId")) in about and _BATCH.findall(about)[-1:] == [
        str(progress.get("batchId"))
    ]


def _wall(info: dict[str, Any]) -> int:
    return int(info["completionTime"] - info["submissionTime"])
