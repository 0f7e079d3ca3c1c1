"""Send heartbeats with the state of queries, take thread dumps, and fetch batches not delivered.

Spark gives every job of a query the query's run id as its group. Ended jobs produce an event, so
only running jobs are examined, and a pass needs only a few calls into the JVM.

A query hangs if its trigger is active, but no event was sent and no task has ended for `QUIET_S`. A
little later, the control plane calls it STALLED; a stop that is stuck looks the same. Both are
taken by the JVM's own diagnostic commands, without another process.
"""

import logging
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from py4j.protocol import Py4JError

from headgate_ground.wire import EventKind, QueryPulse, WireEvent
from listeners.spark.outbox import TelemetrySettings
from listeners.spark.sorter import RecalledRun, RunKnown, RunLine, Sorter, ended_at, recent_executed

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


QUIET_S = 60.0  # the least after which a query counts as STALLED
AGAIN_S = 600.0  # at most one dump of a driver in this time
MOST_OF_A_RUN = 3  # a query may have tasks this long in each batch
MOST_CHARS = 200_000  # of a dump: about 300 threads
_CLASSES = 60  # lines of the histogram
_MOST_RUNS = 200
#: Java's names of arrays of objects and of strings.
_OBJECTS, _TEXTS = "[Ljava.lang.Object;", "[Ljava.lang.String;"
_DIAGNOSTICS = "com.sun.management:type=DiagnosticCommand"
#: Events that say nothing about a query's progress.
_OURS = frozenset(
    {EventKind.HEARTBEAT, EventKind.SLOW_BATCH, EventKind.THREAD_DUMP, EventKind.STATUS}
)


@dataclass(slots=True)
class _Signs:
    at: float  # monotonic: the last sign of life
    task_at: str | None = None
    dumps: int = 0
    requested_at: str = ""  # when a dump was last requested, and when for the last one taken
    answered: str = ""


@dataclass(frozen=True, slots=True)
class ThreadDump:
    """A dump taken because of one run, as the body of an event."""

    query: int
    run: int
    body: dict[str, Any]


class ThreadDumps:
    """Watches for queries that hang."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        self._signs: OrderedDict[int, _Signs] = OrderedDict()
        self._dumped = -AGAIN_S

    def note(self, event: WireEvent) -> None:
        """Note an event of a run; cheap, because the sorter calls this."""
        if event.run is not None and event.kind not in _OURS:
            self._of(event.run).at = monotonic()

    def request(self, run: int, asked: str) -> None:
        """Request a dump for a run; `asked` is the request's time, and each counts once."""
        self._of(run).requested_at = asked

    def look(self, runs: Iterable[RunKnown], pulses: Sequence[QueryPulse]) -> ThreadDump | None:
        """Return a dump if one was requested, or if a run hangs and none was taken lately."""
        runs = list(runs)
        return self._requested(runs) or self._hanging(runs, pulses)

    def _requested(self, runs: list[RunKnown]) -> ThreadDump | None:
        for run in runs:
            signs = self._of(run.run)
            if signs.requested_at == signs.answered:
                continue
            signs.answered = signs.requested_at  # a dump that fails is not tried again
            quiet = {"quiet_s": round(monotonic() - signs.at), "asked": signs.requested_at}
            if body := self._dump():
                return ThreadDump(run.query, run.run, quiet | body)
        return None

    def _hanging(self, runs: list[RunKnown], pulses: Sequence[QueryPulse]) -> ThreadDump | None:
        tasks = {pulse.run: pulse.task_at for pulse in pulses}
        now = monotonic()
        quiet: list[RunKnown] = []
        for run in runs:
            signs = self._of(run.run)
            if signs.task_at != tasks.get(run.run, signs.task_at):
                signs.at, signs.task_at = now, tasks[run.run]
            if now - signs.at >= QUIET_S and signs.dumps < MOST_OF_A_RUN:
                quiet.append(run)
        if now - self._dumped < AGAIN_S:
            return None
        hanging = next(filter(_is_active, quiet), None)
        if hanging is None:
            return None
        signs = self._of(hanging.run)
        self._dumped, signs.dumps = now, signs.dumps + 1
        body = self._dump()
        about = {"quiet_s": round(now - signs.at)}
        return ThreadDump(hanging.query, hanging.run, about | body) if body else None

    def _dump(self) -> dict[str, Any] | None:
        try:
            return dict(self.dump())
        except (Py4JError, OSError, AttributeError) as error:
            logger.warning("could not take a thread dump: %s", error)
            return None

    def dump(self) -> dict[str, str]:
        """Return the JVM's threads, and its largest classes without a garbage collection."""
        heap = self._command("gcClassHistogram", "-all").splitlines()
        threads = self._command("threadPrint")
        return {"threads": threads[:MOST_CHARS], "heap": "\n".join(heap[:_CLASSES])}

    def _command(self, name: str, *options: str) -> str:
        """Return the output of a diagnostic command of the JVM, such as `jcmd` runs it.

        The bean server's own class is hidden in its module, so its interface's method is called.
        """
        jvm, lang = self._context._jvm, self._context._jvm.java.lang
        server = lang.management.ManagementFactory.getPlatformMBeanServer()
        about = jvm.javax.management.ObjectName(_DIAGNOSTICS)
        names = ("javax.management.ObjectName", "java.lang.String")
        types = [lang.Class.forName(class_name) for class_name in (*names, _OBJECTS, _TEXTS)]
        interface = lang.Class.forName("javax.management.MBeanServer")
        method = interface.getMethod("invoke", self._array(lang.Class, types))
        arguments = self._array(lang.Object, [self._array(lang.String, options)])
        signature = self._array(lang.String, [_TEXTS])
        values = self._array(lang.Object, [about, name, arguments, signature])
        return str(method.invoke(server, values))

    def _array(self, kind: Any, values: Sequence[Any]) -> Any:
        made = self._context._gateway.new_array(kind, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def _of(self, run: int) -> _Signs:
        signs = self._signs.setdefault(run, _Signs(monotonic()))
        while len(self._signs) > _MOST_RUNS:
            self._signs.popitem(last=False)
        return signs


def _is_active(run: RunKnown) -> bool:
    """Return whether a run's trigger is active; False if that is unknown."""
    try:
        return bool(run.jquery.status().isTriggerActive())
    except (Py4JError, OSError, AttributeError) as error:
        logger.warning("could not ask whether a trigger is active: %s", error)
        return False


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
            remembered_batches = recent_executed(self._jvm, run.identity.jquery)
        except (Py4JError, OSError, ValueError) as error:
            logger.debug("run %s could not be read back: %s", run.identity.spark_run_id, error)
            run.done = final
            return
        if len(remembered_batches) > 1 and not self._private:
            run.recall_after = time.monotonic() + _share_of_memory_s(remembered_batches, usual_s)
        overdue_at = None if final else time.time() - self._grace_s
        self._put(RecalledRun(run.identity.spark_run_id, remembered_batches, overdue_at))
        if final:
            run.done = True
            run.identity = replace(run.identity, jquery=None)  # releases the query in the JVM
            self._ended.pop(run.identity.spark_run_id, None)


def _share_of_memory_s(remembered_batches: list[dict[str, Any]], usual_s: float) -> float:
    """Return how long to wait at most, so that a fast query does not forget unread batches."""
    span_s = ended_at(remembered_batches[-1]) - ended_at(remembered_batches[0])
    return max(_SHORTEST_RECALL_S, min(usual_s, span_s / 3))
