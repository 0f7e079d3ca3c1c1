"""Change a file sink's log in `_spark_metadata`: roll back to a batch, seed, move aside.

A batch whose number is in the log is silently skipped when it runs again, and readers that ignore
the log still see files that are not listed in any entry. So a rewind removes the later entries and
moves their files aside. Nothing is deleted: the original log and all moved files are stored in
`_headgate/NAME` next to the log, a folder that Spark's readers ignore. Every step can be repeated
if a crash has interrupted it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headgate_ground.files import NotPlain
from headgate_ground.untrusted import remove_tree, status_of, walk
from queries.checkpoints.inside import Inside, copy_plain
from queries.checkpoints.logs import names_in
from queries.checkpoints.sink_log import (
    ASIDE,
    EMPTY,
    LOG,
    DroppedFiles,
    SinkLog,
    empty_log,
    is_part,
)
from queries.checkpoints.snapshot import sync_tree
from queries.domain.definitions.locations import NotALocation, canonical, local_path


@dataclass(frozen=True, slots=True)
class FileSink:
    """One file sink on the local file system."""

    root: Path

    @classmethod
    def at(cls, path: str) -> "FileSink | None":
        """Return the sink for an option `path`; None if it is not on a local file system."""
        try:
            local = local_path(canonical(path))
        except NotALocation:
            return None
        return cls(Path(os.path.realpath(local))) if local else None

    @property
    def log(self) -> Path:
        """The log's folder."""
        return self.root / LOG

    def newest(self) -> int | None:
        """Return the newest batch in the log; None if there is no log."""
        return max(self._log(self.log).entries(), default=None)

    def beyond(self, batch: int) -> DroppedFiles:
        """Return the entries and files after a batch, as `SinkLog.beyond` does."""
        return self._log(self.log).beyond(batch)

    def keep_log(self, name: str) -> Path:
        """Put a copy of the current log aside, once; return its location."""
        aside = self.root / ASIDE / name / LOG
        if aside.exists() or not self.log.exists():
            return aside
        building = f"{LOG}.building"
        with self._aside(name) as copy:
            remove_tree(aside.with_name(building))
            for entry in names_in(self.log):
                copy_plain(self.log / entry, copy, f"{building}/{entry}")
            copy.folder(building)
            sync_tree(aside.with_name(building))
            copy.rename(building, LOG)
            os.fsync(copy.folder(""))
        return aside

    def put_back(self, batch: int, name: str) -> DroppedFiles:
        """Reduce log and data to those of a batch; move everything later aside.

        Entries are moved first, the highest one before the others, so that a reader sees an earlier
        state and never a gap; then the files are moved. The call can be repeated with the same name
        until it has finished.
        """
        before = self._log(self.keep_log(name))
        if not before.folder.exists():
            return DroppedFiles((), ())
        dropped = before.beyond(batch)
        entries = self._log(self.log).entries()
        with self._aside(name) as aside, Inside(self.root) as sink:
            for number in sorted((n for n in entries if n > batch), reverse=True):
                for file in (f".{entries[number]}.crc", entries[number]):
                    with suppress(FileNotFoundError):
                        sink.remove(f"{LOG}/{file}")
            os.fsync(sink.folder(LOG))
            for path in [*dropped.files, *self._unnamed(before)]:
                _move(sink, aside, path)
        return dropped

    def move_aside(self, name: str) -> None:
        """Move the whole log and all data files aside, as if the sink had never been written to."""
        with self._aside(name) as aside, Inside(self.root) as sink:
            aside.take(sink, LOG)
            for path in sorted(self._log(aside.root / LOG).files()):
                _move(sink, aside, path)
            os.fsync(sink.folder(""))

    def seed(self, batch: int) -> None:
        """Write an empty log up to a batch, for a query that continues there with a new sink."""
        building = f"{LOG}.building"
        with Inside(self.root) as sink:
            if sink.has(LOG):
                return
            remove_tree(self.root / building)
            write_empty_log(self.root / building, batch)
            sync_tree(self.root / building)
            sink.rename(building, LOG)
            os.fsync(sink.folder(""))

    # --- helpers ----------------------------------------------------------------------

    @contextmanager
    def _aside(self, name: str) -> Iterator[Inside]:
        """Yield the folder for moved files, which is in the sink and not reached through links."""
        with Inside(self.root) as sink:
            made = sink.folder(f"{ASIDE}/{name}")
            with Inside(self.root / ASIDE / name, made) as aside:
                yield aside

    def _log(self, folder: Path) -> SinkLog:
        return SinkLog(folder, os.path.realpath(self.root), str(self.log))

    def _unnamed(self, before: SinkLog) -> list[str]:
        """Return an interrupted batch's part files, which the log does not list.

        These files are newer than the log's last entry, and were never listed in any entry.
        """
        entries = before.entries()
        if not entries:
            return []
        last = status_of(before.folder / entries[max(entries)]).st_mtime
        named = before.files()
        parts = []
        for folder, folders, names, within in walk(self.root):
            folders[:] = [
                folder_name for folder_name in folders if not folder_name.startswith(("_", "."))
            ]
            for name in names:
                relative = str((folder / name).relative_to(self.root))
                if is_part(relative) and relative not in named and _younger(name, within, last):
                    parts.append(relative)
        return parts


def write_empty_log(log: Path, batch: int) -> None:
    """Write the log for batches up to `batch` that wrote no files."""
    with Inside(log) as made:
        for name in empty_log(batch):
            made.write(name, EMPTY)


def _move(sink: Inside, aside: Inside, path: str) -> None:
    """Move a file with its checksum; skip a file already moved, gone, or behind a link."""
    folder, _, name = path.rpartition("/")
    with suppress(NotPlain):
        aside.take(sink, f"{folder}/.{name}.crc".lstrip("/"))
        aside.take(sink, path)


def _younger(name: str, within: int, than: float) -> bool:
    try:
        return os.stat(name, dir_fd=within, follow_symlinks=False).st_mtime > than
    except FileNotFoundError:
        return False
