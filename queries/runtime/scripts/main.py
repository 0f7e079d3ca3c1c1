"""A script's driver (`queries.runtime.entry`): a user's program.

The program runs in the main thread, and supervision runs in another thread.

The script decides which queries exist. The driver intercepts each of their starts, follows the
queries, and handles three kinds of ends: the script exits, a query ends and the script does not
restart it, or the application must stop.
"""

import logging
import threading
import time
from dataclasses import replace
from typing import Any

from queries.domain.protocol import (
    SCRIPT_FAILED,
    AssignmentEntry,
    DriverSpec,
    RunError,
    RunState,
    RunStatus,
    ScriptJob,
    ScriptReport,
    ScriptState,
    Want,
)
from queries.driver_folder import DriverFolder
from queries.runtime.assignment import Assignments
from queries.runtime.jvms.driver import Jvm
from queries.runtime.main import DriverProgram
from queries.runtime.run import DriverContext, QueryRun
from queries.runtime.scripts import program, writers
from queries.runtime.scripts.intercepted_starts import Meeting, RunWatch
from queries.runtime.spark_session import Sessions
from queries.runtime.status_report import now

logger = logging.getLogger("headgate.script")

#: A query that failed and is not restarted within this time ends the script.
AGAIN_S = 30.0
#: Time for the script to end by itself after its queries, when the application must stop.
LISTEN_S = 10.0
#: How long an event waits for its query's rows, which the control plane creates.
EVENT_HOLD_LIMIT_S = 120.0
_NOTES_AT_MOST = 50
_NOTE_LIMIT = 500


def run(folder: DriverFolder, spec: DriverSpec, jvm: Jvm) -> int:
    """Run the driver of the given folder; return its exit code."""
    return ScriptDriver(folder, spec, jvm).run()


class ScriptDriver(DriverProgram):
    """One driver of a script application."""

    def __init__(self, folder: DriverFolder, spec: DriverSpec, jvm: Jvm) -> None:
        assert spec.script is not None
        event_settings = {"hold_s": EVENT_HOLD_LIMIT_S, **spec.event_settings}
        super().__init__(folder, replace(spec, event_settings=event_settings), jvm)
        self.job: ScriptJob = spec.script
        self.program = program.ScriptProgram(self.job, spec.code_roots, self.references.mask)
        self.report = ScriptReport(ScriptState.RUNNING)
        self._noting = threading.Lock()
        self._meeting: Meeting | None = None
        self._watch: RunWatch | None = None
        self._ending_since: float | None = None  # monotonic: nothing runs, and everything is to end
        self._spark: Any = None

    def run(self) -> int:
        """Start Spark; run the script in this thread and everything else in another."""
        program.prepare(self.job, self.spec.code_roots)
        self.wake.catch_signals()
        self.board.write()
        try:
            assignments, sessions = self._start()
        except Exception as error:  # a session that cannot be built is the driver's own failure
            return self._failed_to_start(error)
        self.board.driver(script=self.report)
        work = threading.Thread(
            target=self._work, args=(assignments, sessions), name="headgate", daemon=True
        )
        work.start()
        self.program.run()
        self.wake.notify()
        work.join()  # it ends this process
        return SCRIPT_FAILED

    def _work(self, assignments: Assignments, sessions: Sessions) -> None:
        try:
            while True:
                code = self._work_once(assignments, sessions)
                if code is not None:
                    self._leave(code, assignments)
        except BaseException:  # the script must not continue without supervision
            logger.exception("the driver's own loop failed")
            self._leave(SCRIPT_FAILED, assignments)

    # --- the start ----------------------------------------------------------------------

    def _patch_spark(self) -> None:
        from pyspark.sql.streaming import DataStreamWriter

        writers.install_writers(DataStreamWriter, self._begin)
        writers.install(self._note, self._stop_queries)

    def _assignments(self, context: DriverContext) -> Assignments:
        self._spark = context.spark
        self._meeting = Meeting(self.job, context, epoch=self.spec.epoch)
        self._watch = RunWatch(self._meeting, self.board, AGAIN_S)
        self.telemetry.session_opened(context.spark, self.spec.listeners)
        for file in self.job.py_files:
            context.spark.sparkContext.addPyFile(file)
        for file in self.job.files:
            context.spark.sparkContext.addFile(file)
        send = self.telemetry.status_changed

        def tell_state(*, query: int, run: int, state: str) -> None:
            if run > 0:
                send(query=query, run=run, state=state)
            else:
                self.telemetry.driver_changed()

        self.board.send_state = tell_state
        return ScriptRuns(self, context, self._meeting)

    def _begin(self, writer: Any, start: Any) -> Any:
        assert self._meeting is not None
        return self._meeting.begin(writer, start)

    def _stop_queries(self) -> None:
        assert self._meeting is not None
        for run in self._meeting.active():
            run.stop_by_script()

    def _note(self, line: str) -> None:
        """Show a message about the script on the application's page, once."""
        shown = self.references.mask(line)[:_NOTE_LIMIT]
        with self._noting:
            notes = self.report.notes
            if shown in notes or len(notes) >= _NOTES_AT_MOST:
                return
            logger.warning("%s", shown)
            self.report = replace(self.report, notes=(*notes, shown))
            self.board.driver(script=self.report)
        self.wake.notify()

    # --- the loop -----------------------------------------------------------------------

    def _look(self, assignments: Assignments) -> int | None:
        meeting, watch = self._meeting, self._watch
        assert meeting is not None
        assert watch is not None
        with self.each.isolate_errors("queries that were started directly through the JVM"):
            self._end_strangers(meeting)
        if assignments.end or meeting.closed:
            code, question = self._end_all(meeting), meeting.question
            return (
                code
                if question is None or code is None
                else self._fail(program.identity_error(question), None)
            )
        over = self.program.over
        if over and self.program.error is not None:
            return self._fail(self.program.error, None)
        failed = watch.failed(at_once=over)
        if failed is not None and failed.error is not None:
            return self._fail(failed.error, failed.failed_batch)
        if over and not meeting.busy():
            self._report_state(ScriptState.COMPLETED)
            return 0
        if over:
            self._report_state(ScriptState.RETURNED)
        return None

    def _end_all(self, meeting: Meeting) -> int | None:
        """End running queries after their batches, then a script that is not responding."""
        meeting.closed = True
        self._report_state(ScriptState.STOPPING, question=meeting.question)
        for run in meeting.active():
            run.request_end(Want.DRAIN)
        if meeting.busy():
            return None
        if self.program.over:
            return 0
        if self._ending_since is None:
            self._ending_since = time.monotonic()
        if time.monotonic() - self._ending_since < LISTEN_S:
            return None
        logger.warning("the script continues although its queries have ended; stopping it")
        return 0

    def _end_strangers(self, meeting: Meeting) -> None:
        for query in meeting.strangers(self._spark):
            name = str(query.name() or query.id().toString())
            self._note(
                f"The query {name} was started directly through the JVM and was stopped "
                "because its checkpoint is not locked. Start it with PySpark's "
                "DataStreamWriter."
            )
            query.stop()

    def _fail(self, error: RunError, batch: int | None) -> int:
        self._report_state(ScriptState.FAILED, failed_batch=batch)
        self.board.driver(error=error)
        return SCRIPT_FAILED

    def _report_state(self, state: ScriptState, **changes: Any) -> None:
        with self._noting:
            if self.report.state is state and not changes:
                return
            self.report = replace(self.report, state=state, **changes)
            self.board.driver(script=self.report)


class ScriptRuns(Assignments):
    """A script's runs: assignment entries refer to started queries and never start any."""

    def __init__(self, driver: ScriptDriver, context: DriverContext, meeting: Meeting) -> None:
        def begin(_: AssignmentEntry) -> QueryRun:
            raise ValueError("a script's driver does not start queries itself")

        super().__init__(driver.folder.control, driver.spec.epoch, driver.board, begin, driver.each)
        self._driver = driver
        self._meeting = meeting
        self._numbers: dict[int, int] = {}  # run -> number

    def apply(self) -> None:
        """Read the assignment and act on every difference."""
        super().apply()
        self.runs = {-number: run for number, run in list(self._meeting.runs.items())}

    @property
    def working(self) -> bool:
        """Return whether the script or one of its queries has not ended; `ScriptDriver` decides."""
        return True

    def _want(self, entry: AssignmentEntry) -> None:
        run = self._meeting.runs.get(entry.found)
        if run is not None:
            self._numbers[entry.run] = entry.found
            run.adopt(entry)
            run.request_end(entry.want, entry.deadline)
        elif not self._meeting.is_starting(entry.found) and self._board.read(entry.run) is None:
            # Its start was refused, or it is no longer remembered: nothing of it is running.
            ended = RunStatus(entry.run, entry.query, RunState.ENDED, ended_at=now())
            self._board.add(ended)

    def _drop(self, run: int) -> None:
        number = self._numbers.get(run)
        hosted_run = self._meeting.runs.get(number) if number is not None else None
        if hosted_run is None:
            self._board.forget(run)
        elif self._has_not_ended(run) or hosted_run.working:
            hosted_run.request_end(Want.STOP)
        else:
            self._numbers.pop(run, None)
            self._meeting.forget(hosted_run.found.number)
