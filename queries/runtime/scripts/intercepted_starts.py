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

from queries.domain.checkpoints.lock_files import local_path
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
from queries.domain.scripts.questions import TEMPORARY, called, question
from queries.domain.scripts.script_queries import MAX_QUERIES, UNNAMED, folder, identity
from queries.runtime.checkpoints.logs import Checkpoint
from queries.runtime.code.stream_writers import Said, said_to
from queries.runtime.data_roots import require_options
from queries.runtime.run import Surroundings
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
_DEFAULT_PLACE = "spark.sql.streaming.checkpointLocation"


class StartRefused(Exception):
    """A query that the script wants to start cannot run here; the message contains the remedy."""


class Meeting:
    """The queries that a script has started in this driver."""

    def __init__(self, job: ScriptJob, around: Surroundings, *, epoch: int) -> None:
        self._job = job
        self._around = around
        self._epoch = epoch
        self._known = {known.identity: known for known in job.known}
        self._guard = threading.Lock()
        self._numbers = 0
        self._starting: dict[int, str] = {}  # number -> identity, until Spark has accepted it
        self._met: set[str] = set()  # identities that the script has started, or tried to start
        self.question: ScriptQuestion | None = None  # the script must end: an author has to answer
        self.runs: dict[int, MetRun] = {}  # by number
        self.closed = False  # the script must end: nothing may start any more

    def begin(self, writer: Any, start: Callable[[], Any]) -> Any:
        """Lock the checkpoint of a writer's query, have Spark start the query, and follow it."""
        said, frame, board = said_to(writer), writer._df, self._around.board
        asked = self._asked(said, frame)
        self._await_former(identity(said.name, asked))
        found = self._register(said, frame, asked)
        number, location = found.number, found.location
        held = None
        try:
            # A relative path is resolved within the application's own folder.
            if asked and not asked.startswith(f"{self._job.checkpoints}/"):
                require_options(self._around.roots, "", {"path": asked})
            held = self._around.locks.take(location, run=-number, epoch=self._epoch)
            if found.temporary:
                _empty(location)
            board.found(found)
            board.add(RunStatus(-number, 0, RunState.STARTING))
            self._around.locks.outwait(
                held,
                wanted=lambda: not self.closed,
                tell=lambda until: board.run(-number, waits_until=until),
            )
            if self.closed:
                raise StartRefused(_CLOSED)
            before = Checkpoint(location, self._around.spark).last_commit()
            writer._jwrite.option("checkpointLocation", location)
            query = start()
        except BaseException:
            if held is not None:
                self._around.locks.release(held)
            board.forget_found(number)
            with self._guard:
                self._starting.pop(number, None)
            raise
        found = replace(found, started=True)
        board.found(found)
        run = MetRun(
            found,
            self._around,
            epoch=self._epoch,
            held=held,
            before=before,
            query=query,
            frame=frame,
            callbacks=said.callbacks,
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
        self._around.board.forget_found(number)

    def active(self) -> list[MetRun]:
        """Return the runs that have not ended, including those of which some part is hanging."""
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
            found: dict[str, MetRun] = {}
            for number in sorted(self.runs):
                found[self.runs[number].found.identity] = self.runs[number]
            again = set(self._starting.values())
        return [run for known, run in found.items() if known not in again]

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
        return [one for one in active if str(one.runId().toString()) not in ours]

    # --- one start ----------------------------------------------------------------------

    def _await_former(self, known: str) -> None:
        """Wait until a query's former runs, which Spark has ended, are gone before it restarts."""
        with self._guard:
            runs = [run for run in self.runs.values() if run.found.identity == known]
        for run in runs:
            if run.working and not run.in_spark:
                run.join(_FORMER_S)

    def _asked(self, said: Said, frame: Any) -> str:
        """Return the canonical checkpoint location that the script specifies, or "" for none."""
        text = said.checkpoint
        if not text and said.name:
            place = frame.sparkSession.conf.get(_DEFAULT_PLACE, None)
            text = f"{place}/{said.name}" if place else ""
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
            asked = canonical(local)
        except NotALocation as error:
            way_out = f"Write {full[:400]}." if full else error.way_out
            raise StartRefused(f"checkpointLocation {text[:200]} {error} {way_out}") from error
        if full:
            self._require_known(said.name, asked, text, full)
        return asked

    def _require_known(self, name: str, asked: str, text: str, full: str) -> None:
        """Raise for a path that Spark would complete with another file system than the disk's.

        A query that has run before keeps the location that was recorded then.
        """
        known = self._known.get(identity(name, asked))
        if known is not None and known.asked == asked:
            return
        raise StartRefused(
            f"checkpointLocation {text[:200]} names no file system, and the default one is not the "
            f"host's disk. Write {full[:400]}, or {asked[:400]} for a folder of this host."
        )

    def _register(self, said: Said, frame: Any, asked: str) -> FoundQuery:
        """Return the query with a new number; raise `StartRefused` if its start is not allowed."""
        known = identity(said.name, asked)
        temporary = "" if asked else _temporary(said, frame)
        location = self._location(said, asked, known, temporary)
        with self._guard:
            if self.closed:
                raise StartRefused(_CLOSED)
            if not temporary:
                self._ask(known, said.name, asked)
            running = {run.found.identity for run in self.runs.values() if not self._has_ended(run)}
            running |= set(self._starting.values())
            if known == UNNAMED and known in running:
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
            self._starting[number] = known
            self._met.add(known)
        self._make_room()
        return FoundQuery(number, known, said.name, asked, location, temporary, said.trigger)

    def _ask(self, known: str, name: str, asked: str) -> None:
        """Raise `StartRefused`, and close, if a known query may have changed its identity."""
        found = question(self._job, self._met, identity=known, name=name, checkpoint=asked)
        if found is None:
            return
        self.question, self.closed = found, True
        names = {row.query: row.identity for row in self._job.known}
        missing = ", ".join(names[query] for query in found.missing)
        raise StartRefused(
            f"The query {called(name, asked)} is new, and the script has not started queries that "
            f"it started before: {missing}. An author must decide on the application's page "
            "whether the new query is one of these; until then, it is not started."
        )

    def _location(self, said: Said, asked: str, known: str, temporary: str) -> str:
        if temporary:
            return f"{self._job.checkpoints}/{folder(said.name, asked)}{TEMPORARY}"
        row: KnownQuery | None = self._known.get(known)
        if row is not None and row.asked == asked and not row.location.endswith(TEMPORARY):
            return row.location  # differs from what the script specifies after a rewind or a reset
        return asked or f"{self._job.checkpoints}/{folder(said.name, asked)}"

    def _make_room(self) -> None:
        """Stop reporting the oldest ended queries if there are many."""
        with self._guard:
            ended = [number for number, run in self.runs.items() if self._has_ended(run)]
            gone = ended[: max(0, len(self.runs) + 1 - MAX_QUERIES)]
        for number in gone:
            self.forget(number)

    def _has_ended(self, run: MetRun) -> bool:
        status = self._around.board.read(-run.found.number)
        return status is None or status.state in ENDED


def _default_of(session: Any) -> str:
    """Return the file system of paths that name none (`fs.defaultFS`), as a session has it."""
    conf = session._jsparkSession.sessionState().newHadoopConf()
    return str(session._jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(conf).toString())


def _temporary(said: Said, frame: Any) -> str:
    """Return why a query's checkpoint is not used for recovery, or "" if it is used."""
    if said.format in _FORGETFUL_SINKS:
        return f"the {said.format} sink loses its rows when the driver ends"
    plan = frame._jdf.queryExecution().logical().toString()
    if _SOCKET in plan:
        return "a socket cannot send its rows again"
    if said.format == "console" and (said.mode == "complete" or _AGGREGATE in plan):
        return "the console sink cannot continue an aggregation"
    return ""


def _empty(location: str) -> None:
    """Remove the files that an earlier driver left in one of our temporary checkpoints."""
    path = local_path(location)
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)
    else:
        logger.warning("the temporary checkpoint %s is not local, so it is not emptied", location)


class Watch:
    """How long each identity's newest run has been failing, and whether that ends the script."""

    def __init__(self, meeting: Meeting, board: Any, wait_s: float) -> None:
        self._meeting = meeting
        self._board = board
        self._wait_s = wait_s
        self._since: dict[int, float] = {}  # number -> monotonic

    def failed(self, *, at_once: bool) -> RunStatus | None:
        """Return a failed run that the script has not restarted in time; None if there is none.

        `at_once`: do not wait, because nothing is left that could restart it.
        """
        for run in self._meeting.newest():
            status: RunStatus | None = self._board.read(-run.found.number)
            if status is None or status.state not in (RunState.FAILED, RunState.REFUSED):
                continue
            since = self._since.setdefault(run.found.number, time.monotonic())
            if at_once or time.monotonic() - since >= self._wait_s:
                return status
        return None
