"""Report the driver's queries in its heartbeat: which are alive, when their tasks finished.

Spark gives every job of a query the query's run id as its group. Ended jobs produce an event, so
only running jobs are examined, and a pass needs only a few calls into the JVM.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JError

from headgate_ground.wire import QueryPulse
from listeners.spark.sorter import RunKnown

logger = logging.getLogger(__name__)

Finished = dict[int, int]  # a running job's id -> number of finished tasks


class QueryPulses:
    """Compares each pass with the previous one."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._finished: defaultdict[str, Finished] = defaultdict(dict)  # at the last pass
        self._ended: set[str] = set()  # found ended at the last pass
        self._task_at: dict[str, str | None] = {}

    def look(self, runs: Sequence[RunKnown]) -> tuple[QueryPulse, ...]:
        """Return the pulse of each run; an empty result if the JVM is not responding.

        A query counts as ended once two consecutive passes have found it ended; in between, the
        run's own thread reports how it ended.
        """
        try:
            finished = self._running_jobs()
            ended = {run.spark_run_id for run in runs if not run.jquery.isActive()}
        except (Py4JError, OSError) as error:
            logger.debug("could not read the queries' pulses: %s", error)
            return ()
        now = datetime.now(UTC).isoformat()
        self._task_at = {
            run.spark_run_id: now
            if _some_finished(self._finished[run.spark_run_id], finished[run.spark_run_id])
            else self._task_at.get(run.spark_run_id)
            for run in runs
        }
        ended_before = ended & self._ended
        self._finished, self._ended = finished, ended
        return tuple(
            QueryPulse(
                run.run, run.spark_run_id not in ended_before, self._task_at[run.spark_run_id]
            )
            for run in runs
        )

    def _running_jobs(self) -> defaultdict[str, Finished]:
        """Return the running jobs of each run, by Spark's run id."""
        context = self._spark.sparkContext
        java, apache = context._jvm.java, context._jvm.org.apache
        running = java.util.List.of(apache.spark.JobExecutionStatus.RUNNING)
        jobs = context._jsc.sc().statusStore().jobsList(running)
        jobs_by_run: defaultdict[str, Finished] = defaultdict(dict)
        for index in range(jobs.size()):
            job = jobs.apply(index)
            if job.jobGroup().isDefined():
                jobs_by_run[job.jobGroup().get()][job.jobId()] = job.numCompletedTasks()
        return jobs_by_run


def jvm_alive(spark: Any) -> bool | None:
    """Return whether the driver's JVM is running; None if it is not a child of this process."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return None if process is None else process.poll() is None


def _some_finished(before: Finished, after: Finished) -> bool:
    """Return whether a task has finished: one more in a running job, or a job has ended."""
    counted = any(done > before.get(job, 0) for job, done in after.items())
    return counted or bool(before.keys() - after.keys())
