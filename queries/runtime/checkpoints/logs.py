"""Read a checkpoint's own logs, and report those that only this driver can read.

Spark's listener bus may drop events; `offsets/` and `commits/` always show the executed batches. In
continuous processing, these logs are the only sign of progress.

Each read costs requests: two listings, and one for each new entry of `offsets/`. So the logs are
read only after a batch has started or committed, and in a separate thread, because a store may take
seconds to respond.
"""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from headgate_ground.files import NotPlain, read_file, replace_file
from headgate_ground.tolerant import at_ms
from listeners.loops.each import LoopErrors
from queries.checkpoints.logs import modified_at, names_in, newest_open, numbers_in, numbers_of
from queries.domain.checkpoints.logs import (
    MOST_ENTRIES,
    MOST_OFFSETS,
    LogEntry,
    LogReport,
    Offsets,
    UnreadableLog,
    begun_at,
    first_offsets,
    read_offsets,
    report_file,
    shortened,
    within_limit,
)
from queries.domain.checkpoints.ownership import local_path
from queries.domain.kafka.lag import kafka_offsets
from queries.runtime.status_report import now

#: Characters or bytes per log entry: enough for several hundred thousand partitions.
MOST_OF_ENTRY = 8 * 1024 * 1024


class CheckpointReader:
    """The logs of one checkpoint, local or remote."""

    def __init__(self, location: str, spark: Any) -> None:
        path = local_path(location)
        self._path = Path(path) if path is not None else None
        self._location = location.rstrip("/")
        self._spark = spark

    @property
    def local(self) -> bool:
        """Return whether the checkpoint is local, so that reading it takes only microseconds."""
        return self._path is not None

    def last_commit(self) -> int | None:
        """Return the newest committed batch; None if there is none."""
        return self._last("commits")

    def committed_after(self, batch: int | None) -> list[int]:
        """Return the batches committed after the given one (None: all in the log), oldest first."""
        return [number for number in self._batches("commits") if batch is None or number > batch]

    def written_at(self, name: str) -> datetime | None:
        """Return the modification time of a file such as `commits/7`; None if it does not exist."""
        if self._path is not None:
            return modified_at(self._path / name)
        system, hadoop_path = self._remote(name)
        if not system.exists(hadoop_path):
            return None
        changed_ms = system.getFileStatus(hadoop_path).getModificationTime()
        return at_ms(changed_ms)

    def in_flight(self) -> int | None:
        """Return the batch that was started but not committed; None if there is none."""
        return newest_open(self._last("offsets"), self._last("commits"))

    def kafka_topics(self) -> set[str]:
        """Return the Kafka topics for which the checkpoint has offsets, including first offsets."""
        newest = self._last("offsets")
        begun = self._offsets(newest) if newest is not None else None
        source_offsets = list(begun.sources.values()) if begun is not None else []
        for name in self._sources():
            with suppress(UnicodeDecodeError, NotPlain):  # not a Kafka log
                source_offsets.append(first_offsets(self._read(f"sources/{name}/0")))
        return {topic for offset in source_offsets for topic in kafka_offsets(offset)}

    def offsets(self, batch: int) -> dict[str, Any]:
        """Return a batch's {source: {"start": …, "end": …}}, from its log and the previous one.

        Sources are identified by their position ("0", "1"…) unless the log itself names them.
        """
        after = self._offsets(batch)
        if after is None:
            return {}
        before = begun_at(self._offsets(batch - 1), after)
        return {
            source: {"start": before.get(source), "end": end}
            for source, end in after.sources.items()
        }

    def listed(self, folder: str) -> dict[int, Any]:
        """Return Hadoop's status of each file in a log that is not local, by batch: one request.

        A folder that does not exist yet is empty.
        """
        system, hadoop_path = self._remote(folder)
        try:
            statuses = system.listStatus(hadoop_path)
        except Py4JJavaError as error:
            if _is_missing(error):
                return {}
            raise
        by_name = {str(status.getPath().getName()): status for status in statuses}
        return {number: by_name[str(number)] for number in numbers_of(by_name)}

    def text_of(self, folder: str, status: Any) -> str | None:
        """Return the content of a file in a log that is not local; None if Spark has purged it.

        This is one request, because the store does not have to look up the size and time again.
        """
        system, _ = self._remote(folder)
        try:
            opened = system.openFile(status.getPath()).withFileStatus(status).build().get()
            try:
                return bytes(opened.readAllBytes()).decode("utf-8", "replace")
            finally:
                opened.close()
        except Py4JJavaError as error:
            if _is_missing(error):
                return None
            raise

    def _offsets(self, batch: int) -> Offsets | None:
        try:
            return read_offsets(batch, self._read(f"offsets/{batch}")) if batch >= 0 else None
        except (UnreadableLog, UnicodeDecodeError, NotPlain):  # purged, or truncated by a crash
            return None

    def _sources(self) -> list[str]:
        if self._path is not None:
            return names_in(self._path / "sources")
        system, hadoop_path = self._remote("sources")
        if not system.exists(hadoop_path):
            return []
        return [str(status.getPath().getName()) for status in system.listStatus(hadoop_path)]

    def _last(self, folder: str) -> int | None:
        return max(self._batches(folder), default=None)

    def _batches(self, folder: str) -> list[int]:
        if self._path is not None:
            return numbers_in(self._path / folder)
        system, hadoop_path = self._remote(folder)
        if not system.exists(hadoop_path):
            return []
        names = [str(status.getPath().getName()) for status in system.listStatus(hadoop_path)]
        return numbers_of(names)

    def _read(self, name: str) -> str:
        """Return a file's content, "" if it is missing; raise `UnreadableLog` if it is too long."""
        if self._path is not None:
            text = read_file(self._path / name, MOST_OF_ENTRY + 1) or ""
            long = len(text) > MOST_OF_ENTRY
        else:
            system, hadoop_path = self._remote(name)
            exists = system.exists(hadoop_path)
            long = exists and system.getFileStatus(hadoop_path).getLen() > MOST_OF_ENTRY
            text = "" if long else read_remote(system, hadoop_path) or ""
        if long:
            raise UnreadableLog(f"{name} has more than {MOST_OF_ENTRY:,} characters")
        return text

    def _remote(self, name: str) -> tuple[Any, Any]:
        return remote(self._spark.sparkContext, f"{self._location}/{name}")


def _is_missing(error: Py4JJavaError) -> bool:
    """Return whether a file or folder was not found; a future wraps the error."""
    raised = error.java_exception
    return any(
        throwable is not None and throwable.getClass().getName() == "java.io.FileNotFoundException"
        for throwable in (raised, raised.getCause())
    )


def remote(context: Any, path: str) -> tuple[Any, Any]:
    """Return Hadoop's file system for a non-local path, and the path in that file system's form."""
    hadoop_path = context._jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(context._jsc.hadoopConfiguration()), hadoop_path


def read_remote(system: Any, path: Any) -> str | None:
    """Return the content of a remote file; None if it does not exist."""
    if not system.exists(path):
        return None
    stream = system.open(path)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


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
