"""Read the assignment repeatedly, and make the driver's runs match it.

Level-triggered: each check compares the complete file with the existing runs, so a lost or repeated
nudge makes no difference, and an entry stays until its end has been acknowledged.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from headgate_ground.files import read_file
from listeners.loops.each import LoopErrors
from queries.domain.protocol import (
    ASSIGNMENT,
    Assignment,
    AssignmentEntry,
    RunState,
    RunStatus,
    Want,
)
from queries.runtime.failures.error_capture import from_python
from queries.runtime.run import QueryRun
from queries.runtime.status_report import ENDED, StatusFile, now

logger = logging.getLogger(__name__)


class Assignments:
    """The runs of this driver, as requested by the assignment."""

    def __init__(
        self,
        directory: Path,
        epoch: int,
        board: StatusFile,
        begin: Callable[[AssignmentEntry], QueryRun],
        errors: LoopErrors | None = None,
        dump: Callable[[int, str], None] = lambda run, asked: None,
    ) -> None:
        """`dump` is called with a run and the time at which its thread dump was requested."""
        self._path = directory / ASSIGNMENT
        self._epoch = epoch
        self._board = board
        self._begin = begin
        self._errors = errors or LoopErrors("driver", logger)
        self._dump = dump
        self.runs: dict[int, QueryRun] = {}
        self.end = False  # exit when nothing is running any more

    def apply(self) -> None:
        """Read the assignment and act on every difference."""
        assignment = self._read()
        if assignment is None:
            return
        wanted = {entry.run: entry for entry in assignment.queries}
        for run in self._board.known() - wanted.keys():
            with self._errors.isolate_errors(f"run {run}"):
                self._drop(run)
        for entry in wanted.values():
            with self._errors.isolate_errors(entry.called):
                self._want(entry)
        self.end = assignment.end
        self._board.driver(applied_generation=assignment.generation)

    def hosted(self) -> set[int]:
        """Return the queries whose runs are still known to this driver."""
        return {run.entry.query for run in self.runs.values()}

    @property
    def working(self) -> bool:
        """Return whether any run has not ended yet."""
        return any(self._has_not_ended(run) for run in self.runs)

    def _drop(self, run: int) -> None:
        """Forget a run that has ended; stop one that is still running, and drop it later."""
        hosted_run = self.runs.get(run)
        if hosted_run is not None and (self._has_not_ended(run) or hosted_run.working):
            hosted_run.request_end(Want.STOP)
            return
        self.runs.pop(run, None)
        self._board.forget(run)

    def _want(self, entry: AssignmentEntry) -> None:
        hosted_run = self.runs.get(entry.run)
        if hosted_run is not None:
            hosted_run.request_end(entry.want, entry.deadline)
            if entry.dump:
                self._dump(entry.run, entry.dump)
        elif self._board.read(entry.run) is not None:
            return  # it could not even be started
        elif entry.want is Want.RUN:
            self._start(entry)
        else:
            # Started and stopped before this driver saw it: it ends without ever having run.
            self._board.add(
                RunStatus(
                    run=entry.run,
                    query=entry.query,
                    state=RunState.ENDED,
                    asked_for=entry.want,
                    ended_at=now(),
                )
            )

    def _start(self, entry: AssignmentEntry) -> None:
        """Start a run; if that is impossible, mark it as failed and let the other runs continue."""
        try:
            self.runs[entry.run] = self._begin(entry)
        except Exception as error:
            run_error = from_python(error, str)  # the board masks what it writes
            status = RunStatus(
                entry.run, entry.query, RunState.FAILED, ended_at=now(), error=run_error
            )
            self._board.add(status)
            raise

    def _has_not_ended(self, run: int) -> bool:
        status = self._board.read(run)
        return status is not None and status.state not in ENDED

    def _read(self) -> Assignment | None:
        """Return the assignment; None if it cannot be read now (the next check may succeed)."""
        with self._errors.isolate_errors(self._path.name):
            text = read_file(self._path)
            assignment = Assignment.loads(text) if text is not None else None
            if assignment is not None and assignment.epoch != self._epoch:
                raise ValueError(f"it is meant for epoch {assignment.epoch}")
            return assignment
        return None
