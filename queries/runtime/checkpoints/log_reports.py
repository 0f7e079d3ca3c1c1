"""Report the logs of a checkpoint that only this driver can read.

Each read costs requests: two lists, and one for each new entry of `offsets/`. So the logs are read
only after a batch has started or committed, and by a thread of their own, because a store may take
seconds to answer.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headgate_ground.files import replace_file
from listeners.loops.each import LoopErrors
from queries.domain.checkpoints.log_report import (
    MOST_ENTRIES,
    MOST_OFFSETS,
    LogEntry,
    LogReport,
    report_file,
    shortened,
    within_limit,
)
from queries.runtime.checkpoints.logs import CheckpointReader
from queries.runtime.status_report import now

#: Seconds between two reads. At Amazon's prices of 2026 (5 USD per million lists), a query whose
#: every batch is shorter costs 9 cents a day.
EVERY_S = 10.0
#: Seconds that the end of a run waits for the last report. Its checkpoint stays locked meanwhile.
LAST_S = 3.0


class LogReports:
    """The reports on one checkpoint during one run."""

    def __init__(
        self,
        checkpoint: CheckpointReader,
        location: str,
        folder: Path,
        *,
        errors: LoopErrors,
        mask: Callable[[Any], Any],
    ) -> None:
        self._checkpoint = checkpoint
        self._location = location
        self._path = folder / report_file(location)
        self._errors = errors
        self._mask = mask
        self._offsets: dict[int, LogEntry] = {}  # read earlier; Spark never changes them
        self._news = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._report, name="log-reports", daemon=True)
        self._news.set()  # what earlier runs wrote
        self._thread.start()

    def request_report(self) -> None:
        """Request a report soon; return immediately."""
        self._news.set()

    def end(self) -> None:
        """Write the last report, after the query has ended; wait at most `LAST_S`."""
        self._over.set()
        self._news.set()
        self._thread.join(LAST_S)

    def _report(self) -> None:
        over = False
        while not over:
            self._news.wait()
            self._news.clear()
            over = self._over.is_set()
            with self._errors.isolate_errors(f"the report on {self._location}"):
                self._write(ended=over)
            self._over.wait(EVERY_S)

    def _write(self, *, ended: bool) -> None:
        report = asdict(self._read(ended=ended))
        replace_file(self._path, json.dumps(self._mask(report)), durable=False)

    def _read(self, *, ended: bool) -> LogReport:
        at = now()
        # Offsets first: a batch that commits in between must not look like one in flight.
        offsets = self._newest("offsets")
        commits = self._newest("commits")
        for batch, status in offsets.items():
            if batch not in self._offsets:
                self._offsets[batch] = self._entry(batch, status)
        self._offsets = {batch: self._offsets[batch] for batch in offsets}
        return LogReport(
            location=self._location,
            at=at,
            ended=ended,
            offsets=within_limit(tuple(self._offsets.values())),
            commits=tuple(LogEntry(batch, _written(status)) for batch, status in commits.items()),
        )

    def _newest(self, folder: str) -> dict[int, Any]:
        statuses = self._checkpoint.listed(folder)
        return {batch: statuses[batch] for batch in sorted(statuses)[-MOST_ENTRIES:]}

    def _entry(self, batch: int, status: Any) -> LogEntry:
        text = None
        if status.getLen() <= MOST_OFFSETS:
            text = self._checkpoint.text_of("offsets", status)
        return LogEntry(
            batch, _written(status), *(shortened(batch, text) if text else (None, None))
        )


def _written(status: Any) -> int:
    return max(0, int(status.getModificationTime()))
