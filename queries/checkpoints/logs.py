"""Read a checkpoint's logs without Spark: from its files, or as its driver reported them.

Files appear and disappear during the read (Spark purges old batches), so None is returned for a
missing file, which is never an error. Reading 100 batches takes about 15 ms.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headgate_ground import untrusted
from headgate_ground.files import NotPlain, read_bytes, read_file
from headgate_ground.tolerant import at_ms, at_s, whole
from queries.domain.checkpoints.logs import (
    MOST_OF_REPORT,
    CommittedBatch,
    LogEntry,
    LogReport,
    Offsets,
    UnreadableLog,
    parse,
    read_commit,
    read_offsets,
    report_file,
)
from queries.domain.checkpoints.ownership import local_path

#: Bytes of a log entry: enough for several hundred thousand partitions.
MOST_OF_ENTRY = 8 * 1024 * 1024


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; [] if it does not exist.

    Raises `UnreadableLog` if the folder exists but cannot be listed, because it must not count as
    empty.
    """
    try:
        return untrusted.names_in(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnreadableLog(
            f"The folder {folder} cannot be listed: {error.strerror}.",
            way_out="Fix the folder or its permissions.",
        ) from error


def numbers_in(folder: Path) -> list[int]:
    """Return the names in a folder that are numbers, in ascending order."""
    return numbers_of(names_in(folder))


def numbers_of(names: Iterable[str]) -> list[int]:
    """Return the names that are numbers in Spark's form, in ascending order."""
    numbered = ((name, whole(name)) for name in names)
    return sorted(number for name, number in numbered if number is not None and str(number) == name)


def newest_open(begun: int | None, committed: int | None) -> int | None:
    """Return the newest batch if it was started but not committed; otherwise None."""
    is_open = begun is not None and (committed is None or begun > committed)
    return begun if is_open else None


def modified_at(path: Path) -> datetime | None:
    """Return a file's modification time; None if the file does not exist."""
    try:
        return at_s(untrusted.status_of(path).st_mtime)
    except (FileNotFoundError, NotADirectoryError, NotPlain):
        return None


class NotLocal(Exception):
    """The checkpoint is not on a local file system."""

    def __init__(self, location: str) -> None:
        super().__init__(f"{location} is not on a local file system; only its driver can read it.")


class LogsUnknown(NotLocal):
    """The requested part of a checkpoint's logs is unknown; the message says why."""

    def __init__(self, why: str) -> None:
        Exception.__init__(self, why)


def unknown_because(error: Exception) -> str:
    """Return the sentence for pages and REST about logs that could not be read."""
    why = str(error) if isinstance(error, NotLocal) else f"the checkpoint cannot be read: {error}"
    return f"Unknown, because {why}"


class Logs(ABC):
    """The two logs of a checkpoint, wherever they are read from."""

    __slots__ = ()

    @property
    @abstractmethod
    def seen_at(self) -> datetime | None:
        """Return when the logs were read; None if each call reads them."""

    @abstractmethod
    def begun(self) -> list[int]:
        """Return the batches in `offsets/`, oldest first."""

    @abstractmethod
    def committed(self) -> list[int]:
        """Return the batches in `commits/`, oldest first."""

    @abstractmethod
    def offsets(self, batch: int) -> Offsets | None:
        """Return a batch's offsets; None if they are not (or no longer) in the log.

        Raises `UnreadableLog` if the file is not an offset log.
        """

    @abstractmethod
    def written_at(self, folder: str, batch: int) -> datetime | None:
        """Return the modification time of `offsets/BATCH` or `commits/BATCH`."""

    def began_at(self, batch: int) -> datetime | None:
        """Return the batch's own time; None if the log does not contain it (continuous epochs)."""
        offsets = self.readable_offsets(batch)
        return at_ms(offsets.timestamp_ms) if offsets is not None else None

    def last_commit(self) -> int | None:
        """Return the newest committed batch; None if there is none."""
        return max(self.committed(), default=None)

    def in_flight(self) -> int | None:
        """Return the newest batch that was started but not committed; None if there is none."""
        return newest_open(max(self.begun(), default=None), self.last_commit())

    def in_flight_at_end(self, reported: int | None) -> int | None:
        """Return `in_flight` at the end of a driver that last reported the commit `reported`.

        Raises `LogsUnknown` if the logs were read too early to show it.
        """
        return self.in_flight()

    def show_all_of(self, driver: int, began: datetime, ended: datetime) -> bool:
        """Return whether the logs were read after a driver's run between two times had ended."""
        return True

    def readable_offsets(self, batch: int) -> Offsets | None:
        """Return a batch's offsets; None if they are missing or the file cannot be read."""
        try:
            return self.offsets(batch)
        except UnreadableLog:
            return None


@dataclass(frozen=True, slots=True)
class CheckpointLogs(Logs):
    """The two logs in a checkpoint folder."""

    root: Path

    @property
    def seen_at(self) -> None:
        """Return None: each call reads the files."""

    @classmethod
    def at(cls, location: str) -> "CheckpointLogs":
        """Return the logs at a canonical location; raise `NotLocal` if that is not local."""
        path = local_path(location)
        if path is None:
            raise NotLocal(location)
        return cls(Path(path))

    def begun(self) -> list[int]:
        """Return the batches in `offsets/`, oldest first."""
        return numbers_in(self.root / "offsets")

    def committed(self) -> list[int]:
        """Return the batches in `commits/`, oldest first."""
        return numbers_in(self.root / "commits")

    def keeps_state(self) -> bool:
        """Return whether the query keeps state between batches; its operators then have folders."""
        return bool(numbers_in(self.root / "state"))

    def offsets(self, batch: int) -> Offsets | None:
        """Return a batch's offsets; None if they are not (or no longer) in the log.

        Raises `UnreadableLog` if the file is not an offset log.
        """
        text = self._text("offsets", batch)
        return read_offsets(batch, text) if text is not None else None

    def commit(self, batch: int) -> CommittedBatch | None:
        """Return a batch's commit; None if the batch is not committed.

        Raises `UnreadableLog` if the file is not a commit log.
        """
        text = self._text("commits", batch)
        return read_commit(batch, text) if text is not None else None

    def _text(self, folder: str, batch: int) -> str | None:
        """Return a file's contents; None if there is no file.

        Raises `UnreadableLog` if the file is not text, or is a link that a driver created.
        """
        try:
            path = self.root / folder / str(batch)
            return read_bytes(path, within=self.root, most=MOST_OF_ENTRY).decode()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as error:
            problem = "is not UTF-8 text" if isinstance(error, ValueError) else error.strerror
            raise UnreadableLog(f"batch {batch}: {folder}/{batch} {problem}") from error

    def written_at(self, folder: str, batch: int) -> datetime | None:
        """Return the modification time of `offsets/BATCH` or `commits/BATCH`."""
        return modified_at(self.root / folder / str(batch))


@dataclass(frozen=True, slots=True)
class ReportedLogs(Logs):
    """The newest entries of both logs."""

    report: LogReport
    driver: int  # that wrote the report

    @property
    def seen_at(self) -> datetime | None:
        """Return when the driver read the logs."""
        return self.report.seen_at

    def begun(self) -> list[int]:
        """Return the reported batches of `offsets/`, oldest first."""
        return [entry.batch for entry in self.report.offsets]

    def committed(self) -> list[int]:
        """Return the reported batches of `commits/`, oldest first."""
        return [entry.batch for entry in self.report.commits]

    def offsets(self, batch: int) -> Offsets | None:
        """Return a batch's offsets; None if they are older than the report.

        Raises `UnreadableLog` if they are not an offset log, or too long for the report.
        """
        entry = _of(self.report.offsets, batch)
        if entry is None:
            return None
        if entry.text is None:
            raise UnreadableLog(f"batch {batch}: its offsets are not in the driver's report")
        return read_offsets(batch, entry.text)

    def began_at(self, batch: int) -> datetime | None:
        """Return the batch's own time, even if its offsets are not in the report."""
        entry = _of(self.report.offsets, batch)
        return at_ms(entry.began_ms) if entry is not None else None

    def written_at(self, folder: str, batch: int) -> datetime | None:
        """Return the modification time of `offsets/BATCH` or `commits/BATCH`."""
        entry = _of(getattr(self.report, folder), batch)
        return at_ms(entry.written_ms) if entry is not None else None

    def in_flight_at_end(self, reported: int | None) -> int | None:
        """Return the batch in flight if no commit was reported later; else raise `LogsUnknown`."""
        batch = self.in_flight()
        if batch is None or (reported is not None and reported >= batch):
            raise LogsUnknown(
                f"the driver read the checkpoint's logs last at {self.seen_at:%H:%M:%S} UTC, and "
                "a batch may have started since then."
            )
        return batch

    def show_all_of(self, driver: int, began: datetime, ended: datetime) -> bool:
        """Return whether the report was made after a driver's run between two times had ended."""
        at = self.seen_at
        if at is None:
            return False
        return at >= ended or (self.report.ended and self.driver == driver and at >= began)


def reported_logs(own: Path, location: str, driver: int) -> ReportedLogs | None:
    """Return the logs that a driver reported in its `own` folder; None if it reported none.

    Raises `LogsUnknown` if the file is not a valid report, because users' code can write there.
    """
    try:
        text = read_file(own / report_file(location), MOST_OF_REPORT + 1, within=own)
        return None if text is None else ReportedLogs(parse(text, location), driver)
    except (ValueError, NotPlain) as error:
        raise LogsUnknown(
            f"the report of driver {driver} on the checkpoint's logs is damaged. Restart the "
            "query; its driver then writes a new report."
        ) from error


def _of(entries: tuple[LogEntry, ...], batch: int) -> LogEntry | None:
    return next((entry for entry in entries if entry.batch == batch), None)
