"""The driver, one process for one application (`queries.runtime.entry`).

It executes `assignment.json`, reports in `status.json`, and exits with a code that gives the
reason. Everything the control plane knows about a driver comes from these files, from the kernel
and from the event stream; nothing here waits for the control plane.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from listeners.loops.each import LoopErrors
from listeners.spark.telemetry import Telemetry
from queries.domain.definitions.kubernetes import MASTER
from queries.domain.protocol import (
    CURRENT,
    DRIVER_LOG,
    HOST_SEEN,
    JVM_DIED,
    SPARK_STOPPED,
    TMP,
    Current,
    DriverSpec,
    ExecutorSeen,
    ExecutorsWanted,
    Want,
)
from queries.driver_folder import DriverFolder, read_current
from queries.runtime import build, clusters, kafka, pods, spark_session
from queries.runtime.allowed_paths import roots_of
from queries.runtime.assignment import Assignments
from queries.runtime.checkpoints.locks import Locks
from queries.runtime.checkpoints.owners import Fence
from queries.runtime.clusters import ExecutorWatch
from queries.runtime.failures.error_capture import from_python, refusal
from queries.runtime.jvms.driver import Jvm
from queries.runtime.process import Wake, end_jvm, keep_small
from queries.runtime.run import DriverContext, QueryRun
from queries.runtime.spark_session import Sessions, warm_up
from queries.runtime.status_report import StatusFile

logger = logging.getLogger("headgate.driver")

LOOK_S = 1.0  # between looks at the assignment without a nudge
FLUSH_S = 5.0  # for the outbox, when exiting
JVM = "jvm"  # the main loop's name for the event that this process's JVM has ended

SESSION_FAILED = 70
FENCED = 72  # current.json names a later epoch, or its own was revoked


def run(folder: DriverFolder, spec: DriverSpec, jvm: Jvm) -> int:
    """Run the driver of the given folder; return its exit code."""
    return DriverProgram(folder, spec, jvm).run()


class DriverProgram:
    """One driver from start to exit."""

    def __init__(self, folder: DriverFolder, spec: DriverSpec, jvm: Jvm) -> None:
        self.folder = folder
        self.spec = spec
        self.jvm = jvm
        self.stands_by = spec.standby  # until current.json contains its epoch
        self.wake = Wake()
        self.jvm_ended = threading.Event()
        self.spark_stopped = threading.Event()
        self.references = jvm.references
        self.references.learn(spec.conf, spec.env)
        # An error with one file or one run is logged once, skipped, and tried again.
        self.each = LoopErrors(
            "driver", logger, mask=self.references.mask, moot=self._follows_the_jvm
        )
        self.board = StatusFile(
            folder.own, spec.epoch, self.wake.notify, self.references.mask_within, self.each
        )
        self.telemetry = Telemetry(
            driver=spec.driver,
            epoch=spec.epoch,
            directory=folder.own,
            redis_url=spec.redis_url,
            stream=spec.stream,
            key=bytes.fromhex(spec.event_key),
            settings=spec.event_settings,
            mask=self.references.mask_within,
            isolate_errors=self.each.isolate_errors,
            troubles=lambda: [
                (element.about, element.cause, element.times) for element in self.each.now()
            ],
            revocation=spec.revocation,
            revoked=self._end_revoked,
        )
        self.shim = jvm.shim
        self.gateway: Any = None
        self.locks: Locks | None = None
        self.executors: ExecutorWatch | None = None
        self.pods: pods.PodWatch | None = None
        self._executors_reported: tuple[tuple[ExecutorSeen, ...], ExecutorsWanted | None] = (), None

    def run(self) -> int:
        """Start Spark, execute the assignment until the driver must end, then exit."""
        self.wake.catch_signals()
        self.board.write()
        try:
            assignments, sessions = self._start()
        except Exception as error:  # a session that cannot be built is the driver's own failure
            return self._failed_to_start(error)
        while True:
            code = self._work_once(assignments, sessions)
            if code is not None:
                return self._leave(code, assignments)

    def _failed_to_start(self, error: Exception) -> int:
        run_error = from_python(error, self.references.mask)
        logger.error("Spark did not start: %s", run_error.root_cause)
        self.board.driver(error=run_error)
        self.board.write()
        return self._leave(SESSION_FAILED, None)

    # --- start ------------------------------------------------------------------------

    def _start(self) -> tuple[Assignments, Sessions]:
        steps = self.jvm.steps
        steps.report = self._report_step
        self._report_step(steps.newest)
        self.gateway = self.jvm.gateway()
        self.wake.watch(os.pidfd_open(self.gateway.proc.pid), JVM)
        with self._reports_waiting():
            spark = spark_session.start_spark(self.spec, self.folder, self.gateway, self.references)
        steps.done("session")
        self.wake.catch_signals()  # again, because Spark has replaced one (trap 22)
        jvm, jvm_pid = spark.sparkContext._jvm, self.gateway.proc.pid
        spark_session.close_in_forked_children(self.gateway, self.jvm.lock, self.shim.descriptor)
        from pyspark.sql.streaming import DataStreamReader

        self._patch_spark()
        steps.done("Python")
        kafka.install(DataStreamReader)
        if self.stands_by and self._current() != self.spec.epoch:  # else its queries are waiting
            self._warm_up(spark)
            steps.done("warm-up")
        self.telemetry.attach(spark)
        self.board.send_state = self.telemetry.status_changed
        self.locks = Locks(
            jvm,
            jvm_pid,
            installation=self.spec.installation,
            driver=self.spec.driver,
            host=self.spec.host,
            ended_hosts=self.spec.ended_hosts,
            in_pod=self.spec.pod,
            sees=self.spec.sees,
            fence=Fence(
                jvm,
                spark.sparkContext._jsc.hadoopConfiguration,
                self.folder.control / HOST_SEEN,
                self.spec.fence_watch_s,
                self.spec.without_classes,
            ),
        )
        self.executors = ExecutorWatch(spark, self.spec.master, self.pods)
        sessions = Sessions(spark, self.telemetry, self.spec.listeners, self.references)
        context = DriverContext(
            spark=spark,
            sessions=sessions,
            locks=self.locks,
            board=self.board,
            telemetry=self.telemetry,
            references=self.references,
            roots=roots_of(self.spec),
            jvm_ended=self.jvm_ended,
            spark_stopped=self.spark_stopped,
            start_deadline_s=self.spec.start_deadline_s,
            start_max_s=self.spec.start_max_s,
        )

        self.board.driver(
            ready=True,
            wanted=None,
            spark_version=spark.version,
            java_version=str(jvm.java.lang.System.getProperty("java.version")),
            application_id=spark.sparkContext.applicationId,
            jvm_pid=jvm_pid,
        )
        self.board.write()
        steps.done("telemetry")
        logger.info("ready; seconds: %s", steps)
        return self._assignments(context), sessions

    def _report_step(self, step: str) -> None:
        """Report how far the start has come: a slow start must not be taken for a stuck one."""
        self.board.driver(step=step)
        self.board.write()

    def _warm_up(self, spark: Any) -> None:
        """Load the classes for a first batch; without them, the standby takes over more slowly."""
        try:
            warm_up(spark, self.folder.own / TMP)
        except Exception as error:
            run_error = from_python(error, self.references.mask)
            logger.warning("the standby's own first batch failed: %s", run_error.root_cause)

    @contextmanager
    def _reports_waiting(self) -> Iterator[None]:
        """Report while Spark's start is waiting for YARN, or for executors' pods."""

        def tell(wanted: ExecutorsWanted) -> None:
            self.board.driver(wanted=wanted)
            self.board.write()

        if self.spec.master.startswith(MASTER):
            conf = self.references.resolve_all(self.spec.conf)
            self.pods = pods.PodWatch(self.gateway, self.spec, conf, tell)
            try:
                yield
            except Exception as error:
                reason = self.pods.reason()
                self.pods.end()
                if reason and spark_session.stopped_while_starting(str(error)):
                    raise pods.ExecutorsFailed(
                        f"Executors of this driver kept failing before there was a session: "
                        f"{reason}"
                    ) from None
                raise
            self.pods.session_is_up()
            return
        if self.spec.master != "yarn":
            yield
            return
        queue = clusters.Queue(self.gateway, self.spec.application, self.spec.conf, tell)
        queue.start()
        try:
            yield
        finally:
            queue.over.set()

    def _patch_spark(self) -> None:
        """Patch Spark's own classes to reject, count or record certain calls by users' code."""
        from pyspark.sql.streaming import DataStreamWriter

        build.refuse_starts_while_building(DataStreamWriter)
        build.count_callbacks(DataStreamWriter)
        build.note_while_building(DataStreamWriter)

    def _assignments(self, context: DriverContext) -> Assignments:
        """Return this driver's runs, none of them started yet."""
        return Assignments(
            self.folder.control,
            self.spec.epoch,
            self.board,
            lambda entry: QueryRun(entry, context),
            self.each,
            self.telemetry.request_dump,
        )

    # --- the loop ---------------------------------------------------------------------

    def _work_once(self, assignments: Assignments, sessions: Sessions) -> int | None:
        """Perform the pending work, then sleep; return an exit code when it is time to exit."""
        if self.wake.leave:
            return 0
        current = self._current()
        if current is not None and current > self.spec.epoch:
            logger.error("a later epoch has taken over; exiting")
            return FENCED
        if self.spark_stopped.is_set():
            logger.error("Spark was stopped while its queries were running; exiting")
            return SPARK_STOPPED
        if self.stands_by and current != self.spec.epoch:
            return JVM_DIED if JVM in self.wake.wait(LOOK_S) else None
        self.stands_by = False
        isolate_errors = self.each.isolate_errors
        with isolate_errors("assignment"):
            assignments.apply()
        for run in assignments.runs.values():
            with isolate_errors(f"{run.entry.called}: its start"):
                run.check_start()
        with isolate_errors("checkpoint locks"):
            self._check_locks(assignments)
        with isolate_errors("unused sessions"):
            sessions.close_unused(assignments.hosted())
        with isolate_errors("executors"):
            self._see_executors()
        code = self._look(assignments)
        self.board.write()
        if code is not None:
            return code
        with isolate_errors(DRIVER_LOG):
            keep_small(self.folder.own)
        if assignments.end and not assignments.working:
            return 0
        if JVM in self.wake.wait(LOOK_S):
            return JVM_DIED
        return None

    def _look(self, assignments: Assignments) -> int | None:
        """Return an exit code if a subclass has another reason to exit; this class has none."""
        return None

    def _see_executors(self) -> None:
        """Record lost and new executors on the board, and report them."""
        if self.executors is None:
            return
        executors, wanted = self.executors.look(), self.executors.wanted()
        if (executors, wanted) != self._executors_reported:
            self._executors_reported = executors, wanted
            self.board.driver(executors=executors, wanted=wanted)
            self.board.write()  # files are the truth: they are on disk before the event
            self.telemetry.driver_changed()

    def _follows_the_jvm(self, error: Exception) -> bool:
        """Return whether an error was caused by the JVM exiting, which also ends the driver."""
        return type(error).__module__.startswith("py4j") and self.wake.has_ended(JVM)

    def _current(self) -> int | None:
        """Return the epoch of the application's driver; None if that cannot be read now."""
        with self.each.isolate_errors(CURRENT):
            text = read_current(self.folder.root.parent)
            return None if text is None else Current.loads(text).epoch
        return None

    def _check_locks(self, assignments: Assignments) -> None:
        assert self.locks is not None
        for lock, holder in self.locks.lost(self.each.isolate_errors):
            run = assignments.runs.get(lock.run)
            if run is None:
                continue
            with self.each.isolate_errors(f"{run.entry.called}: its lock"):
                by = f"process {holder}" if holder else "an unknown process"
                text = f"The lock of {lock.location} was lost; it is now held by {by}."
                run.lock_lost(refusal("held", text, holder))

    # --- exit -------------------------------------------------------------------------

    def _leave(self, code: int, assignments: Assignments | None) -> int:
        """Stop all runs, flush, end the JVM, and exit, all within `stop_timeout_s`."""
        end = time.monotonic() + self.spec.stop_timeout_s
        if code == JVM_DIED:
            self.jvm_ended.set()
            logger.error("the JVM has died; exiting")
        elif assignments is not None and code != SPARK_STOPPED:
            for run in assignments.runs.values():
                with self.each.isolate_errors(f"{run.entry.called}: its stop"):
                    run.request_end(Want.STOP)
            for run in assignments.runs.values():
                run.join(max(0.0, (end - time.monotonic()) / 2))
        self.board.write()
        with self.each.isolate_errors("the last events"):
            last = self.telemetry.close(min(FLUSH_S, max(1.0, (end - time.monotonic()) / 2)))
            logger.info("exiting with code %s after event %s", code, last)
        if self.pods is not None:
            self.pods.end()
        with self.each.isolate_errors("the end of the JVM"):
            self._end_jvm(max(1.0, end - time.monotonic()))
        logging.shutdown()
        # Threads that hang in a dead or unresponsive JVM must not keep the process alive.
        os._exit(code)

    def _end_revoked(self) -> None:
        """Exit immediately, whatever is in progress: a user has declared this driver's host gone.

        Another host may have taken the checkpoint by now, so this driver must not commit again.
        """
        if self.gateway is not None:
            self.shim.send_line("jvm-killed 1")  # otherwise the shim would blame an outsider
            self.gateway.proc.kill()
        logger.error(
            ("the host was declared gone and epoch %s was revoked; exiting"), self.spec.epoch
        )
        os._exit(FENCED)

    def _end_jvm(self, timeout_s: float) -> None:
        """Stop Spark in a thread with a deadline (trap 24), then end the JVM in any case."""
        if self.gateway is None:
            return
        process = self.gateway.proc
        end = time.monotonic() + timeout_s
        if process.poll() is None and not self.jvm_ended.is_set():
            stopping = threading.Thread(target=_stop_spark, daemon=True)
            stopping.start()
            stopping.join(timeout_s * 2 / 3)
            process.stdin.close()  # the JVM exits by itself when its standard input ends
        end_jvm(process, max(0.5, end - time.monotonic()), self.shim)


def _stop_spark() -> None:
    from pyspark import SparkContext

    try:
        context = SparkContext._active_spark_context
        if context is not None:
            context.stop()
    except Exception as error:  # the JVM is ended by force in any case
        logger.warning("spark.stop() failed: %s", type(error).__name__)
