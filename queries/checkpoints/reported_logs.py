"""The logs of a checkpoint as its driver reported them: the newest entries at one moment."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headgate_ground.files import NotPlain, read_file
from headgate_ground.tolerant.values import at_ms
from queries.checkpoints.logs import Logs, LogsUnknown
from queries.domain.checkpoints.log_report import (
    MOST_OF_REPORT,
    LogEntry,
    LogReport,
    parse,
    report_file,
)
from queries.domain.checkpoints.logs import Offsets, UnreadableLog, read_offsets


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
