"""The probe driver (`queries.runtime.entry`), Spark for a single task.

The same shim that runs drivers starts and watches a probe, and reports its exit. The probe reads
`probe.json`, and writes its findings to `result.json` after every step. It does not own a
checkpoint and does not report anywhere else: it has no listener and sends no events. When its time
is up, it exits, whatever Spark is doing.
"""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headgate_ground.files import replace_file
from queries import host_pressure
from queries.domain.probes.questions import (
    RESULT,
    TASK,
    PreflightTask,
    ProbeResult,
    RecordsTask,
    read_task,
)
from queries.domain.protocol import LAST_SEQ, DriverSpec
from queries.domain.supervision.progress import LEAST_CPU_S
from queries.driver_folder import DriverFolder
from queries.runtime import build, spark_session
from queries.runtime.allowed_paths import roots_of
from queries.runtime.failures.error_capture import from_python
from queries.runtime.jvms.driver import Jvm
from queries.runtime.probes import inspections, preflight
from queries.runtime.probes.io import TimeLimit
from queries.runtime.process import end_jvm, stat_cpu_s

logger = logging.getLogger("headgate.probe")

FAILED = 70
LATE = 75  # its time was up
JVM_LEAVES_S = 3


def run(folder: DriverFolder, spec: DriverSpec, jvm: Jvm) -> int:
    """Execute the task in a folder; return the exit code."""
    replace_file(folder.own / LAST_SEQ, "0")  # it sends no events, so none can be missing
    return Probe(folder, spec, jvm).run()


class Probe:
    """One probe from start to exit."""

    def __init__(self, folder: DriverFolder, spec: DriverSpec, jvm: Jvm) -> None:
        self.folder = folder
        self.jvm = jvm
        self.spec = spec
        self.task = read_task((folder.control / TASK).read_text())
        self.references = jvm.references
        self.references.learn(self.spec.conf, self.spec.env, asdict(self.task))
        self.report = ProbeResult(at="Starting Spark")
        self.gateway: Any = None
        self.shim = jvm.shim

    def run(self) -> int:
        """Start Spark, perform the task, end Spark; report every step as it begins."""
        watch = self._limit_start()
        code = 0
        try:
            with self.step("Starting Spark"):
                spark = self._start()
            watch.end()  # a slow start of Spark does not use up the question's time
            self._limit_question()
            if isinstance(self.task, PreflightTask):
                preflight.run(
                    spark,
                    self.task,
                    self.references,
                    self,
                    code_roots=self.spec.code_roots,
                    roots=roots_of(self.spec),
                )
            elif isinstance(self.task, RecordsTask):
                records = inspections.look(
                    spark, self.task, self.references, roots_of(self.spec), self.step
                )
                self.publish(records=records)
            else:
                with self.step("Reading the state"):
                    state = inspections.read(spark, self.task)
                self.publish(state=state)
        except Exception as error:
            run_error = from_python(error, self.references.mask)
            logger.error("the probe failed: %s", run_error.root_cause)
            self.publish(error=asdict(run_error))
            code = FAILED
        self.publish(done=True)
        self._leave(code)
        return code

    def publish(self, **changes: Any) -> None:
        """Update the result on disk with the current findings."""
        self.report = replace(self.report, **changes)
        text = self.report.dumps(self.references.mask_within)
        replace_file(self.folder.own / RESULT, text, durable=False)

    @contextmanager
    def step(self, phrase: str) -> Iterator[None]:
        """Report the step in the block, and afterwards how long it took."""
        self.publish(at=phrase)
        began = time.monotonic()
        try:
            yield
        finally:
            ms = int((time.monotonic() - began) * 1000)
            self.publish(took_ms={**self.report.took_ms, phrase: ms})

    def _start(self) -> Any:
        self.gateway = self.jvm.gateway()
        spark = spark_session.start_spark(self.spec, self.folder, self.gateway, self.references)
        spark_session.close_in_forked_children(self.gateway, self.jvm.lock, self.shim.descriptor)
        from pyspark.sql.streaming import DataStreamWriter

        build.refuse_starts_while_building(DataStreamWriter)
        return spark

    def _limit_start(self) -> TimeLimit:
        """Limit the time in which Spark's start does not advance."""
        limit_s = self.spec.start_deadline_s or self.task.limit_s
        most_s = self.spec.start_max_s or limit_s
        last_used_at = 0.0

        def moved() -> bool:
            nonlocal last_used_at
            now = self._cpu_s()
            if now < last_used_at + LEAST_CPU_S:
                return False
            last_used_at = now
            return True

        return TimeLimit(limit_s, most_s=most_s, moved=moved, over=self._give_up)

    def _limit_question(self) -> TimeLimit:
        """Limit the time for the task; while the host is busy, time does not count."""
        limit_s = self.task.limit_s
        return TimeLimit(
            limit_s,
            most_s=limit_s + (self.spec.start_max_s or 0.0),
            moved=lambda: host_pressure.read_pressure().is_high,
            over=self._give_up,
        )

    def _cpu_s(self) -> float:
        """Return the processor time that this process and its JVM have used."""
        jvm = self.jvm.process
        of_jvm = stat_cpu_s(Path(f"/proc/{jvm.pid}/stat")) if jvm is not None else 0.0
        return time.process_time() + of_jvm

    def _give_up(self, what: str) -> None:
        """End the probe and its JVM: the time is up, and a call into Spark may be hanging."""
        text = f"{what}, at: {self.report.at}."
        if (pressure := host_pressure.read_pressure()).is_high:
            text += f" This host was busy: {pressure.figure}."
        logger.error(text)
        error = {"error_class": "", "type_name": "ProbeLate", "root_cause": text, "message": text}
        self.publish(error=error, done=True)
        self._leave(LATE)

    def _leave(self, code: int) -> None:
        """End the JVM, by force if it does not exit immediately, then exit."""
        if self.gateway is not None:
            process = self.gateway.proc
            process.stdin.close()  # the JVM exits by itself when its standard input ends
            end_jvm(process, JVM_LEAVES_S, self.shim)  # it holds nothing worth a clean stop
        logging.shutdown()
        os._exit(code)
