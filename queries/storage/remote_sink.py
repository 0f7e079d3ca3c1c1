"""Change a file sink's log on remote storage (local: `queries.checkpoints.file_sink`).

Folders of object stores cannot be renamed, so every step is on single files, in an order in which
a crash loses nothing: the log is copied aside, a manifest notes that the copy is complete, entries
are removed from the highest one down, then files are moved. What is removed and moved is decided by
the copy, so a repeated call does the same.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headgate_ground.tolerant import time_of
from headgate_ground.untrusted import remove_tree
from queries.checkpoints.file_sink import (
    ASIDE,
    EMPTY,
    LOG,
    SinkLog,
    empty_log,
    is_part,
    numbered_names,
)
from queries.storage.hadoop import COPY_LIMIT_S, FileEntry, HadoopStorage, StorageFailed
from queries.storage.remote_checkpoint import MOST_NAMES, Mirror, download

MANIFEST = "log.json"
#: Objects of a sink among which an interrupted batch's files are looked for: their listing takes
#: about 300 requests, and its answer fits into `hadoop.MOST_ANSWER`.
MOST_LISTED = 300_000


@dataclass(frozen=True, slots=True)
class MovedAside:
    """The effect of a change on a sink's files."""

    batches: int  # entries removed from the log
    files: int  # moved by this call
    searched: bool = True  # False: the sink has too many objects to find an interrupted batch's


@dataclass(frozen=True, slots=True)
class RemoteSink:
    """One file sink on remote storage. Every call raises `StorageFailed` if the storage fails."""

    storage: HadoopStorage
    location: str  # its canonical location
    work: Path  # a folder of ours, in which copies of its log are made

    @property
    def log(self) -> str:
        """The log's location."""
        return f"{self.location}/{LOG}"

    @contextmanager
    def copied_log(self, location: str = "") -> Iterator[SinkLog | None]:
        """Yield a local copy of the log, or of the one at a location; None if there is none."""
        location = location or self.log
        with self._brought(location, self._entries(location)) as copy:
            yield log_in(copy, self.location) if copy.exists() else None

    def put_back(self, batch: int, name: str) -> MovedAside:
        """Reduce log and data to those of a batch; move everything later to `_headgate/NAME`.

        As `FileSink.put_back`. Raises `CannotCopy` if the log does not reach the batch.
        """
        aside = f"{self.location}/{ASIDE}/{name}"
        if (newest_at := self._keep_log(aside)) is None:
            return MovedAside(0, 0)
        with self.copied_log(f"{aside}/{LOG}") as before:
            assert before is not None
            dropped = before.beyond(batch)
            self._remove_entries(batch)
            unnamed = self._unnamed(before.files(), newest_at)
            moved = self.storage.move(self.location, [*dropped.files, *(unnamed or ())], aside)
        return MovedAside(len(dropped.batches), moved, unnamed is not None)

    def move_aside(self, name: str) -> MovedAside:
        """Move the whole log and all data files aside, as if the sink had never been written to."""
        aside = f"{self.location}/{ASIDE}/{name}"
        if self._keep_log(aside) is None:
            return MovedAside(0, 0)
        with self.copied_log(f"{aside}/{LOG}") as before:
            assert before is not None
            self._remove_entries(-1)
            self.storage.delete(self.log)
            moved = self.storage.move(self.location, sorted(before.files()), aside)
            return MovedAside(len(before.entries()), moved)

    def seed(self, batch: int) -> None:
        """Write an empty log up to a batch, for a query that continues there with a new sink.

        Only leftovers of an interrupted call are completed; any other log is left alone.
        """
        wanted = empty_log(batch)
        entries = self._entries(self.log)
        if all(entry.name in wanted and entry.bytes <= len(EMPTY) for entry in entries):
            for name in wanted:
                self.storage.write(self.log, name, EMPTY.encode())

    def refresh(self, mirror: Mirror, *, now: datetime) -> None:
        """Bring a mirror of the log up to date."""
        folder = mirror.checkpoint
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        wanted = {entry.name: entry for entry in self._entries(self.log)}
        fresh = [entry for name, entry in wanted.items() if not _same(folder / name, entry)]
        with self._brought(self.log, fresh) as copy:
            for name in os.listdir(copy) if copy.exists() else ():
                shutil.move(copy / name, folder / name)
        for name in set(os.listdir(folder)) - wanted.keys():
            (folder / name).unlink(missing_ok=True)
        mirror.note("", read_at=now)

    # --- helpers ----------------------------------------------------------------------

    @contextmanager
    def _brought(self, location: str, entries: Iterable[FileEntry]) -> Iterator[Path]:
        """Yield a folder with local copies of files, with the storage's times; none if all is gone.

        They come over the socket: the code in the storage JVM's sandbox cannot replace them.
        """
        sizes = {entry.name: entry.bytes for entry in entries}
        stage = self.work / f"stage-{uuid.uuid4().hex}"
        try:
            if sizes and len(download(self.storage, location, sizes, stage)) == len(sizes):
                remove_tree(stage)
            yield stage
        finally:
            remove_tree(stage)

    def _entries(self, location: str) -> list[FileEntry]:
        listing = self.storage.list(location, most=MOST_NAMES)
        if listing.more:
            raise StorageFailed(f"{location} contains more than {MOST_NAMES:,} names.")
        return [entry for entry in listing.entries if not entry.folder]

    def _keep_log(self, aside: str) -> datetime | None:
        """Put a copy of the log aside, once; return the time of its newest entry.

        Returns None if there is no log. The copies have their own times, so the time of the newest
        entry is in the manifest. Without a manifest, nothing has been changed yet.
        """
        if (manifest := self.storage.read(aside, [MANIFEST], most=1000).get(MANIFEST)) is not None:
            with suppress(ValueError, KeyError, TypeError):
                if (at := time_of(json.loads(manifest.data)["newest_at"])) is not None:
                    return at
            raise StorageFailed(f"{aside}/{MANIFEST} is damaged.")
        entries = {entry.name: entry for entry in self._entries(self.log)}
        numbered = numbered_names(entries)
        if not numbered:
            return None
        newest_at = entries[numbered[max(numbered)]].modified_at
        if newest_at is None:
            raise StorageFailed(f"{self.log}: the storage reports no times.")
        self.storage.delete(f"{aside}/{LOG}")  # of a worker that died
        if self.storage.copy(self.log, entries, f"{aside}/{LOG}").missing:
            raise StorageFailed(f"{self.log} was changed while it was copied.")
        manifest_body = {"newest_at": newest_at.isoformat()}
        self.storage.write(aside, MANIFEST, json.dumps(manifest_body).encode())
        return newest_at

    def _remove_entries(self, batch: int) -> None:
        """Remove the entries after a batch, the highest one first: a reader never sees a gap."""
        entries = numbered_names(entry.name for entry in self._entries(self.log))
        for number in sorted((n for n in entries if n > batch), reverse=True):
            self.storage.delete(f"{self.log}/{entries[number]}")

    def _unnamed(self, named: Iterable[str], newest_at: datetime) -> list[str] | None:
        """Return an interrupted batch's part files, as `FileSink` does; None: too many objects.

        Object stores report whole seconds, so files of the newest entry's second are included.
        """
        listing = self.storage.list(
            self.location, deep=True, most=MOST_LISTED, limit_s=COPY_LIMIT_S
        )
        if listing.more:
            return None
        names = set(named)
        return [
            entry.name
            for entry in listing.entries
            if is_part(entry.name)
            and entry.name not in names
            and entry.modified_at is not None
            and entry.modified_at >= newest_at
        ]


def log_in(folder: Path, location: str) -> SinkLog:
    """Return a local copy of the log of the sink at a canonical location."""
    root = location.partition("://")[2].partition("/")[2]
    return SinkLog(folder, f"/{root}", f"{location}/{LOG}")


def _same(path: Path, entry: FileEntry) -> bool:
    """Return whether a mirror has an entry; after a rewind, a batch gets another entry."""
    if not path.is_file() or entry.modified_at is None:
        return False
    stat = path.stat()
    same_time = abs(stat.st_mtime - entry.modified_at.timestamp()) < 0.001
    return stat.st_size == entry.bytes and same_time
