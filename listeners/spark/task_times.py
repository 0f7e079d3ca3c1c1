"""Measure how queries use their driver's cores, and what they wait for, with Spark's status store.

Spark stores totals of a stage's times, so single tasks are not read: each pass is one call for all
stages that have ended since the last one and for those that are running.
"""

import logging
import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import orjson
from py4j.protocol import Py4JError

from headgate_ground.wire import TaskTimeBody
from listeners.spark.sorter import RunKnown

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 10.0  # Spark keeps 1,000 stages (spark.ui.retainedStages): 100 a second
_RECENT = 1_000  # ended stages that a later one may have waited for
_REMEMBERED_JOBS = 2_000
#: Before every stage, and large enough that Py4J passes it as a long.
_LONG_AGO = 2**31

#: The job description of streaming batches (Spark: StreamExecution.getBatchDescriptionString).
_RUN_ID = re.compile(r"^runId = ([0-9a-f-]{36})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class StageTimes:
    """One attempt of a stage; times are milliseconds since 1970 by the driver's clock."""

    group: str  # Spark's run id of its query
    submitted: int
    first_task: int | None  # None: no task has run
    ended: int | None  # None: it is running
    task_ms: int  # of finished tasks


def waited(stage: StageTimes, others: Iterable[StageTimes]) -> tuple[int, dict[str, int]]:
    """Return how long, in milliseconds, a stage waited for its first task, and for which queries.

    The wait is divided among the queries whose tasks ran in the meantime, by each query's task
    time; a stage's task time is assumed to be spread evenly from its first task to its end.
    """
    if stage.first_task is None or stage.first_task <= stage.submitted:
        return 0, {}
    wait = stage.first_task - stage.submitted
    ran: defaultdict[str, float] = defaultdict(float)
    for other in others:
        if other.group == stage.group or other.first_task is None:
            continue
        since = max(stage.submitted, other.first_task)
        until = stage.first_task if other.ended is None else min(stage.first_task, other.ended)
        if until > since:
            whole = max(1, (other.ended or until) - other.first_task)
            ran[other.group] += (until - since) * max(1.0, other.task_ms / whole)
    total = sum(ran.values())
    return wait, {group: round(wait * share / total) for group, share in ran.items()}


@dataclass(slots=True)
class _Sum:
    task_ms: int = 0
    waited_ms: int = 0
    waited_for: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    grown: bool = False


class TaskTimes:
    """Sums up the times of ended stages for each query."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        self._mapper: Any = None
        self._looked = -LOOK_EVERY_S
        self._complained = False
        self._newest = _LONG_AGO  # the latest end of a counted stage
        self._counted: set[tuple[int, int]] = set()  # stages that ended in that millisecond
        self._recent: deque[StageTimes] = deque(maxlen=_RECENT)
        self._groups: OrderedDict[int, str] = OrderedDict()  # by job
        self._sums: defaultdict[str, _Sum] = defaultdict(_Sum)

    def look(self, runs: Sequence[RunKnown]) -> tuple[TaskTimeBody, ...]:
        """Return the sums of runs whose sums have grown; () if the next pass is not due yet.

        The sums do not include the last seconds of an ended run.
        """
        if monotonic() - self._looked < LOOK_EVERY_S:
            return ()
        self._looked = monotonic()
        try:
            ended, running = self._read()
        except (Py4JError, OSError, ValueError, KeyError, TypeError) as error:
            level = logging.DEBUG if self._complained else logging.WARNING
            logger.log(level, "could not read Spark's stages: %s", error)
            self._complained = True
            return ()
        self._recent.extend(ended)
        for stage in ended:
            self._add(stage, [*self._recent, *running])
        numbers = {run.spark_run_id: run.run for run in runs}
        sums = tuple(
            self._task_time(numbers[group], total, numbers)
            for group, total in self._sums.items()
            if total.grown and group in numbers
        )
        for group in self._sums.keys() - numbers.keys():
            del self._sums[group]
        return sums

    def _add(self, stage: StageTimes, others: Iterable[StageTimes]) -> None:
        wait, shares = waited(stage, others)
        total = self._sums[stage.group]
        total.task_ms += stage.task_ms
        total.waited_ms += wait
        for group, share in shares.items():
            total.waited_for[group] += share
        total.grown = True

    def _task_time(self, run: int, total: _Sum, numbers: dict[str, int]) -> TaskTimeBody:
        total.grown = False
        return TaskTimeBody(
            run=run,
            task_ms=total.task_ms,
            waited_ms=total.waited_ms,
            waited_for={
                str(numbers[group]): ms
                for group, ms in total.waited_for.items()
                if group in numbers
            },
        )

    # --- Spark ------------------------------------------------------------------------------
    def ended_since(self, at_ms: int) -> list[dict[str, Any]]:
        """Return the stages that ended since a time, as Spark stores them; at most 1,000."""
        return self._rows(self._view("StageDataWrapper").index("completionTime").first(at_ms))

    def execution_of(self, job: int) -> int | None:
        """Return the SQL execution of a job; None if it has none, or Spark has forgotten it."""
        try:
            execution = self._store().read(self._class("JobDataWrapper"), job).sqlExecutionId()
        except Py4JError:
            return None
        return int(execution.get()) if execution.isDefined() else None

    def _read(self) -> tuple[list[StageTimes], list[StageTimes]]:
        """Return the stages that have ended since the last pass, and those that are running."""
        view = self._view("StageDataWrapper").index("completionTime").first(self._newest)
        active = self._view("StageDataWrapper").index("active").first(True).last(True)
        rows = [*self._rows(view), *self._rows(active)]
        ended, running = [], []
        for row in sorted(rows, key=lambda row: row["info"].get("completionTime") or 0):
            stage, name = self._stage(row), (row["info"]["stageId"], row["info"]["attemptId"])
            if stage is None:
                continue
            if stage.ended is None:
                running.append(stage)
                continue
            if stage.ended > self._newest:
                self._newest, self._counted = stage.ended, set()
            if name not in self._counted:
                self._counted.add(name)
                ended.append(stage)
        return ended, running

    def _stage(self, row: dict[str, Any]) -> StageTimes | None:
        """Return a query's stage; None if the stage has no query, or was not submitted."""
        info = row["info"]
        group = self._group(info.get("description") or "", row.get("jobIds") or ())
        if not group or info["submissionTime"] is None:
            return None
        return StageTimes(
            group=group,
            submitted=info["submissionTime"],
            first_task=info["firstTaskLaunchedTime"],
            ended=info["completionTime"],
            task_ms=info["executorRunTime"],
        )

    def _group(self, description: str, jobs: Sequence[int]) -> str:
        """Return Spark's run id of the query to which a stage belongs; "" if there is none.

        If the query's own code sets job descriptions, the job's group is read.
        """
        if run_ids := _RUN_ID.findall(description):
            return str(run_ids[-1])
        for job in jobs[:1]:
            if job not in self._groups:
                self._groups[job] = self._group_of_job(job)
                if len(self._groups) > _REMEMBERED_JOBS:
                    self._groups.popitem(last=False)
            return self._groups[job]
        return ""

    def _group_of_job(self, job: int) -> str:
        try:
            group = self._store().read(self._class("JobDataWrapper"), job).info().jobGroup()
        except Py4JError:  # Spark has forgotten it
            return ""
        return str(group.get()) if group.isDefined() else ""

    def json_of(self, value: Any) -> Any:
        """Return a value of the status store, read from its JSON form."""
        jvm = self._context._jvm
        if self._mapper is None:
            self._mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
            self._mapper.registerModule(jvm.com.fasterxml.jackson.module.scala.DefaultScalaModule())
        return orjson.loads(self._mapper.writeValueAsString(value))

    def _rows(self, view: Any) -> list[dict[str, Any]]:
        stream = self._context._jvm.java.util.stream.StreamSupport.stream(view.spliterator(), False)
        rows: list[dict[str, Any]] = self.json_of(stream.toList())
        return rows

    def _view(self, name: str) -> Any:
        return self._store().view(self._class(name))

    def _store(self) -> Any:
        return self._context._jsc.sc().statusStore().store()

    def _class(self, name: str) -> Any:
        lang = self._context._jvm.java.lang
        loader = lang.Thread.currentThread().getContextClassLoader()
        return lang.Class.forName(f"org.apache.spark.status.{name}", True, loader)
