"""Write status.json, the driver's report about itself: always complete, only by its main loop.

Runs report from their own threads; the board keeps each run's newest status and notifies the main
loop when there is something to write.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from headgate_ground.files import replace_file
from listeners.loops.each import LoopErrors
from queries.domain.protocol import STATUS, DriverStatus, FoundQuery, RunState, RunStatus

logger = logging.getLogger(__name__)

#: These change with every batch …
LIVE_FIELDS = frozenset({"last_batch", "last_commit_at", "last_progress"})
LIVE_EVERY_S = 1.0  # so they are written no more often than this
ALIVE_EVERY_S = 5.0  # and `at` is updated at least this often

ENDED = frozenset({RunState.ENDED, RunState.FAILED, RunState.REFUSED})


class SendState(Protocol):
    """Send an event when a run's state has changed."""

    def __call__(self, *, query: int, run: int, state: str) -> None:
        """Send the event; return immediately."""


def now() -> str:
    """Return the driver's clock as ISO 8601, UTC."""
    return datetime.now(UTC).isoformat()


class StatusFile:
    """The newest status of the driver and of each of its runs."""

    def __init__(
        self,
        directory: Path,
        epoch: int,
        wake: Callable[[], None],
        mask: Callable[[Any], Any],
        errors: LoopErrors | None = None,
    ) -> None:
        self.directory = directory  # the driver's own folder
        self._path = directory / STATUS
        self._mask = mask
        self.each = errors or LoopErrors("driver", logger)
        self.notify = wake
        self._lock = threading.Lock()
        self._status = DriverStatus(epoch=epoch, applied_generation=0, at=now())
        self._runs: dict[int, RunStatus] = {}
        self._script_queries: dict[int, FoundQuery] = {}  # started by a script, by number
        self._adopted: dict[int, int] = {}  # run under which a found one was reported -> its own
        self._dirty = False
        self._live_dirty = False
        self._written = 0.0  # monotonic
        self.send_state: SendState | None = None

    def driver(self, **changes: Any) -> None:
        """Change the driver's own fields, which the next `write` writes to the file."""
        with self._lock:
            changed = replace(self._status, **changes)
            self._dirty = self._dirty or changed != self._status
            self._status = changed

    def add(self, status: RunStatus) -> None:
        """Add a new run to the board."""
        with self._lock:
            self._runs[status.run] = status
            self._dirty = True
        self.write()
        self._send_state(status)

    def run(self, run: int, **changes: Any) -> None:
        """Change a run's status, from any thread. A changed state is reported immediately."""
        with self._lock:
            run = self._adopted.get(run, run)
            before = self._runs[run]
            after = replace(before, **changes)
            self._runs[run] = after
            if set(changes) <= LIVE_FIELDS:
                self._live_dirty = self._live_dirty or after != before
                return
            self._dirty = self._dirty or after != before
        if after.state is not before.state or after.hangs is not before.hangs:
            self.write()  # files are the truth: they are on disk before the event
            self._send_state(after)
        self.notify()

    def warn(self, run: int, text: str) -> None:
        """Add a warning to a run's status, once; any thread can add one, about any run."""
        with self._lock:
            run = self._adopted.get(run, run)
            before = self._runs.get(run)
            if before is None or before.state in ENDED or text in before.warnings:
                return
            self._runs[run] = replace(before, warnings=(*before.warnings, text))
            self._dirty = True
        self.notify()

    def read(self, run: int) -> RunStatus | None:
        """Return a run's status."""
        with self._lock:
            return self._runs.get(self._adopted.get(run, run))

    def known(self) -> set[int]:
        """Return the runs with a status; of the runs started by a script, only the adopted ones."""
        with self._lock:
            return {run for run in self._runs if run > 0}

    def forget(self, run: int) -> None:
        """Remove an ended run whose end has been acknowledged."""
        with self._lock:
            self._dirty = self._runs.pop(run, None) is not None or self._dirty

    # --- what a script has started ------------------------------------------------------

    def found(self, query: FoundQuery) -> None:
        """Report a query that a script has started or is about to start."""
        with self._lock:
            self._script_queries[query.number] = query
            self._dirty = True

    def adopt(self, number: int, *, run: int, query: int) -> None:
        """Add to a found query's status the keys of its rows, which now exist."""
        with self._lock:
            status = self._runs.pop(-number)
            self._runs[run] = replace(status, run=run, query=query)
            self._adopted[-number] = run
            self._dirty = True

    def forget_query(self, number: int) -> None:
        """Stop reporting a query: it never started, or its end has been acknowledged."""
        with self._lock:
            self._script_queries.pop(number, None)
            self._runs.pop(self._adopted.pop(-number, -number), None)
            self._dirty = True

    def write(self) -> None:
        """Write status.json if there is something new, or if it has not been written for some time.

        If the file cannot be written, this is logged, and the next call tries again.
        """
        with self._lock:
            age = time.monotonic() - self._written
            live = self._live_dirty and age >= LIVE_EVERY_S
            if not (self._dirty or live or age >= ALIVE_EVERY_S):
                return
            runs, script_queries = tuple(self._runs.values()), tuple(self._script_queries.values())
            self._status = replace(self._status, at=now(), runs=runs, found=script_queries)
            # A full disk does not end any query: changes stay pending, and the next turn tries
            # again.
            with self.each.isolate_errors(self._path.name):
                replace_file(self._path, self._status.dumps(self._mask), durable=False)
                self._dirty = self._live_dirty = False
                self._written = time.monotonic()

    def _send_state(self, status: RunStatus) -> None:
        if self.send_state is not None:
            self.send_state(query=status.query, run=status.run, state=status.state)
