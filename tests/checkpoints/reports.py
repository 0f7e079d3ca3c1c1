"""Reports on checkpoints in an object store, made by the driver's own code from local folders."""

import logging
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from listeners.loops.each import LoopErrors
from queries.checkpoints.logs import numbers_in
from queries.domain.checkpoints.logs import report_file
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Run
from queries.runtime.checkpoints import logs
from queries.runtime.checkpoints.logs import LogReports


@dataclass
class Status:
    """What Hadoop tells about one file."""

    path: Path

    def getLen(self) -> int:
        return self.path.stat().st_size

    def getModificationTime(self) -> int:
        return int(self.path.stat().st_mtime * 1000)


@dataclass
class Store:
    """The checkpoint as its driver sees it; counts the requests."""

    root: Path
    broken: bool = False
    lists: int = 0
    reads: int = 0
    local: bool = False

    def listed(self, folder: str) -> dict[int, Status]:
        self.lists += 1
        if self.broken:
            raise OSError("the store does not respond")
        return {number: self.of(folder, number) for number in numbers_in(self.root / folder)}

    def of(self, folder: str, number: int) -> Status:
        return Status(self.root / folder / str(number))

    def text_of(self, folder: str, status: Status) -> str:
        self.reads += 1
        return status.path.read_text()


def reports_of(store: Any, location: str, folder: Path) -> LogReports:
    """Return a run's reports on a checkpoint; the first one is under way."""
    each = LoopErrors("driver", logging.getLogger(__name__))
    return LogReports(store, location, folder, errors=each, mask=lambda held: held)


@dataclass
class Remote:
    """A query whose checkpoint is in an object store; `root` has the same files."""

    query: Query
    root: Path
    home: Path
    location: str

    @classmethod
    def of(cls, query: Query, root: Path, home: Path) -> "Remote":
        """Move a query's checkpoint, on paper, from a local folder to a bucket."""
        location = f"s3a://flights/checkpoints/{query.name}"
        Checkpoint.objects.filter(query=query).update(location=location)
        return cls(query, root, home, location)

    def own(self, run: Run) -> Path:
        """Return the own folder of a run's driver."""
        home = self.home / str(run.driver_id)
        Driver.objects.filter(pk=run.driver_id).update(directory=str(home))
        (home / "own").mkdir(parents=True, exist_ok=True)
        return home / "own"

    def report(self, run: Run, at: datetime, *, ended: bool = False) -> Path:
        """Write a run's report on the files in `root`, as if read at that moment."""
        folder = self.own(run)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logs, "now", at.isoformat)
            patch.setattr(LogReports, "_report", lambda _: None)
            reports = reports_of(Store(self.root), self.location, folder)
            reports._write(ended=ended)
        return folder / report_file(self.location)
