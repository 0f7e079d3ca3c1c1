"""Intercept every query start by a script, on any thread and in any session.

Before Spark starts a query, its checkpoint is locked under the driver's epoch and the query is
reported, without waiting for the control plane. A start that cannot be allowed raises an error in
the script; the error contains the remedy.
"""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from queries.domain.checkpoints.ownership import local_path
from queries.domain.definitions.locations import (
    NotALocation,
    canonical,
    in_full,
    names_file_system,
)
from queries.domain.protocol import (
    FoundQuery,
    KnownQuery,
    RunState,
    RunStatus,
    ScriptJob,
    ScriptQuestion,
)
from queries.domain.scripts import (
    MAX_QUERIES,
    TEMPORARY,
    UNNAMED,
    called,
    folder,
    identity,
    question,
)
from queries.runtime.allowed_paths import require_options
from queries.runtime.checkpoints.logs import CheckpointReader
from queries.runtime.code.stream_writers import WriterSettings, settings_of
from queries.runtime.run import DriverContext
from queries.runtime.scripts.run import MetRun
from queries.runtime.status_report import ENDED

logger = logging.getLogger("headgate.script")

#: Sinks whose rows are lost with the driver, so that a checkpoint would promise too much.
_FORGETFUL_SINKS = frozenset({"memory"})
#: How long a start waits until a previous run of the same query has released its lock: Spark
#: notifies the script of the end first, and the rest takes milliseconds.
_FORMER_S = 30.0
#: In a plan's text: a source that cannot read its data again.
_SOCKET = "TextSocket"
_AGGREGATE = "Aggregate"
_CLOSED = "The application is being stopped, so no more queries are started."
#: The setting that gives a checkpoint to queries that have none (Spark:
#: SQLConf.CHECKPOINT_LOCATION).
_DEFAULT_FOLDER = "spark.sql.streaming.checkpointLocation"


class StartRefused(Exception):
    """A query that the script wants to start cannot run here; the message contains the remedy."""


class Meeting:
    """The queries that a script has started in this driver."""

    def __init__(self, job: ScriptJob, context: DriverContext, *, epoch: int) -> None:
        self._job = job
        self._context = context
        self._epoch = epoch
        self._recorded = {query.identity: query for query in job.known}
        self._guard = threading.Lock()
        self._numbers = 0
        self._starting: dict[int, str] = {}  # number -> identity, until Spark has accepted it
        self._identities: set[str] = (
            set()
        )  # identities that the script has started, or tried to start
        self.question: ScriptQuestion | None = None  # the script must end: an author has to answer
        self.runs: dict[int, MetRun] = {}  # by number
        self.closed = False  # the script must end: nothing may start any more

    def begin(self, writer: Any, start: Callable[[], Any]) -> Any:
        """Lock the checkpoint of a writer's query, have Spark start the query, and follow it."""
        settings, frame, board = settings_of(writer), writer._df, self._context.board
        specified_location = self._specified_location(settings, frame)
        self._await_former(identity(settings.name, specified_location))
        script_query = self._register(settings, frame, specified_location)
        number, location = script_query.number, script_query.location
        lock = None
        try:
            # A relative path is resolved within the application's own folder.
            if specified_location and not specified_location.startswith(
                f"{self._job.checkpoints}/"
            ):
                require_options(self._context.roots, "", {"path": specified_location})
            lock = self._context.locks.take(location, run=-number, epoch=self._epoch)
            if script_query.temporary:
                _empty(location)
            board.found(script_query)
            board.add(RunStatus(-number, 0, RunState.STARTING))
            self._context.locks.wait_for_former_owner(
                lock,
                wanted=lambda: not self.closed,
                report_wait=lambda until: board.run(-number, waits_until=until),
            )
            if self.closed:
                raise StartRefused(_CLOSED)
            before = CheckpointReader(location, self._context.spark).last_commit()
            writer._jwrite.option("checkpointLocation", location)
            query = start()
        except BaseException:
            if lock is not None:
                self._context.locks.release(lock)
            board.forget_query(number)
            with self._guard:
                self._starting.pop(number, None)
            raise
        script_query = replace(script_query, started=True)
        board.found(script_query)
        run = MetRun(
            script_query,
            self._context,
            epoch=self._epoch,
            lock=lock,
            before=before,
            query=query,
            frame=frame,
            callbacks=settings.callbacks,
        )
        with self._guard:
            self.runs[number] = run
            self._starting.pop(number, None)
        if self.closed:  # its end was requested while it was being started
            run.stop_by_script()
        return query

    def is_starting(self, number: int) -> bool:
        """Return whether Spark has not accepted a query yet."""
        with self._guard:
            return number in self._starting

    def forget(self, number: int) -> None:
        """Forget a query whose end has been acknowledged."""
        with self._guard:
            self.runs.pop(number, None)
        self._context.board.forget_query(number)

    def active(self) -> list[MetRun]:
        """Return the runs that have not ended, including partly hanging ones."""
        with self._guard:
            runs = list(self.runs.values())
        return [run for run in runs if run.working or not self._has_ended(run)]

    def busy(self) -> bool:
        """Return whether any query is being started or has not ended."""
        with self._guard:
            starting = bool(self._starting)
        return starting or bool(self.active())

    def newest(self) -> list[MetRun]:
        """Return each identity's newest run, except identities that are being started again."""
        with self._guard:
            newest_runs: dict[str, MetRun] = {}
            for number in sorted(self.runs):
                newest_runs[self.runs[number].found.identity] = self.runs[number]
            again = set(self._starting.values())
        return [run for query_identity, run in newest_runs.items() if query_identity not in again]

    def strangers(self, spark: Any) -> list[Any]:
        """Return the queries that were started directly through the JVM, past this interception."""
        with self._guard:
            if self._starting:
                return []
        # For all sessions. py4j turns it into a Python mapping, which queries the JVM for each key.
        elements = spark._jsparkSession.sharedState().activeStreamingQueries().elements()
        active = []
        while elements.hasMoreElements():
            active.append(elements.nextElement())
        with self._guard:
            ours = {str(run._query.runId) for run in self.runs.values()}
            if self._starting:
                return []
        return [query for query in active if str(query.runId().toString()) not in ours]

    # --- one start ----------------------------------------------------------------------

    def _await_former(self, query_identity: str) -> None:
        """Before a query restarts, wait until its former runs, which Spark has ended, are gone."""
        with self._guard:
            runs = [run for run in self.runs.values() if run.found.identity == query_identity]
        for run in runs:
            if run.working and not run.in_spark:
                run.join(_FORMER_S)

    def _specified_location(self, settings: WriterSettings, frame: Any) -> str:
        """Return the canonical checkpoint location that the script specifies, or "" for none."""
        text = settings.checkpoint
        if not text and settings.name:
            default_folder = frame.sparkSession.conf.get(_DEFAULT_FOLDER, None)
            text = f"{default_folder}/{settings.name}" if default_folder else ""
        if not text:
            return ""
        bare = ":" not in text.split("/", 1)[0]
        local = os.path.normpath(os.path.join(os.getcwd(), text)) if bare else text
        full = ""
        if not names_file_system(text):
            plain = text if not bare or text.startswith("/") else f"/FOLDER/{text}"
            full = in_full(plain, _default_of(frame.sparkSession))
            full = "" if full == plain else full
        try:
            location = canonical(local)
        except NotALocation as error:
            way_out = f"Write {full[:400]}." if full else error.way_out
            raise StartRefused(f"checkpointLocation {text[:200]} {error} {way_out}") from error
        if full:
            self._require_recorded(settings.name, location, text, full)
        return location

    def _require_recorded(self, name: str, location: str, text: str, full: str) -> None:
        """Raise for a path that Spark would complete with another file system than the disk's.

        A query that has run before keeps the location that was recorded then.
        """
        query = self._recorded.get(identity(name, location))
        if query is not None and query.asked == location:
            return
        raise StartRefused(
            f"checkpointLocation {text[:200]} names no file system, and the default one is not the "
            f"host's disk. Write {full[:400]}, or {location[:400]} for a folder of this host."
        )

    def _register(
        self, settings: WriterSettings, frame: Any, specified_location: str
    ) -> FoundQuery:
        """Return the query with a new number; raise `StartRefused` if its start is not allowed."""
        query_identity = identity(settings.name, specified_location)
        temporary = "" if specified_location else _temporary(settings, frame)
        location = self._location(settings, specified_location, query_identity, temporary)
        with self._guard:
            if self.closed:
                raise StartRefused(_CLOSED)
            if not temporary:
                self._require_answer(query_identity, settings.name, specified_location)
            running = {run.found.identity for run in self.runs.values() if not self._has_ended(run)}
            running |= set(self._starting.values())
            if query_identity == UNNAMED and query_identity in running:
                raise StartRefused(
                    "A second query without a name and checkpoint cannot be distinguished from "
                    'the first. Add .queryName("…") with a unique name before its .start().'
                )
            if len(running) >= MAX_QUERIES:
                raise StartRefused(
                    f"A script can run at most {MAX_QUERIES} queries at a time. Stop one, or "
                    "move some to another script and application."
                )
            self._numbers += 1
            number = self._numbers
            self._starting[number] = query_identity
            self._identities.add(query_identity)
        self._make_room()
        return FoundQuery(
            number,
            query_identity,
            settings.name,
            specified_location,
            location,
            temporary,
            settings.trigger,
        )

    def _require_answer(self, query_identity: str, name: str, specified_location: str) -> None:
        """Raise `StartRefused`, and close, if a known query may have changed its identity."""
        open_question = question(
            self._job,
            self._identities,
            identity=query_identity,
            name=name,
            checkpoint=specified_location,
        )
        if open_question is None:
            return
        self.question, self.closed = open_question, True
        names = {row.query: row.identity for row in self._job.known}
        missing = ", ".join(names[query] for query in open_question.missing)
        raise StartRefused(
            f"The query {called(name, specified_location)} is new, and the script has not started "
            "queries that "
            f"it started before: {missing}. An author must decide on the application's page "
            "whether the new query is one of these; until then, it is not started."
        )

    def _location(
        self, settings: WriterSettings, specified_location: str, query_identity: str, temporary: str
    ) -> str:
        if temporary:
            return f"{self._job.checkpoints}/{folder(settings.name, specified_location)}{TEMPORARY}"
        row: KnownQuery | None = self._recorded.get(query_identity)
        if (
            row is not None
            and row.asked == specified_location
            and not row.location.endswith(TEMPORARY)
        ):
            return row.location  # differs from what the script specifies after a rewind or a reset
        return (
            specified_location
            or f"{self._job.checkpoints}/{folder(settings.name, specified_location)}"
        )

    def _make_room(self) -> None:
        """Stop reporting the oldest ended queries if there are many."""
        with self._guard:
            ended = [number for number, run in self.runs.items() if self._has_ended(run)]
            oldest_numbers = ended[: max(0, len(self.runs) + 1 - MAX_QUERIES)]
        for number in oldest_numbers:
            self.forget(number)

    def _has_ended(self, run: MetRun) -> bool:
        status = self._context.board.read(-run.found.number)
        return status is None or status.state in ENDED


def _default_of(session: Any) -> str:
    """Return the file system of paths that name none (`fs.defaultFS`), as a session has it."""
    conf = session._jsparkSession.sessionState().newHadoopConf()
    return str(session._jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(conf).toString())


def _temporary(settings: WriterSettings, frame: Any) -> str:
    """Return why a query's checkpoint is not used for recovery, or "" if it is used."""
    if settings.format in _FORGETFUL_SINKS:
        return f"the {settings.format} sink loses its rows when the driver ends"
    plan = frame._jdf.queryExecution().logical().toString()
    if _SOCKET in plan:
        return "a socket cannot send its rows again"
    if settings.format == "console" and (settings.mode == "complete" or _AGGREGATE in plan):
        return "the console sink cannot continue an aggregation"
    return ""


def _empty(location: str) -> None:
    """Remove the files that an earlier driver left in one of our temporary checkpoints."""
    path = local_path(location)
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)
    else:
        logger.warning("the temporary checkpoint %s is not local, so it is not emptied", location)


class RunWatch:
    """How long each identity's newest run has been failing, and whether that ends the script."""

    def __init__(self, meeting: Meeting, board: Any, wait_s: float) -> None:
        self._meeting = meeting
        self._board = board
        self._wait_s = wait_s
        self._since: dict[int, float] = {}  # number -> monotonic

    def failed(self, *, at_once: bool) -> RunStatus | None:
        """Return a failed run that the script has not restarted in time; None if there is none.

        `at_once`: do not wait, because nothing can restart it any longer.
        """
        for run in self._meeting.newest():
            status: RunStatus | None = self._board.read(-run.found.number)
            if status is None or status.state not in (RunState.FAILED, RunState.REFUSED):
                continue
            since = self._since.setdefault(run.found.number, time.monotonic())
            if at_once or time.monotonic() - since >= self._wait_s:
                return status
        return None
