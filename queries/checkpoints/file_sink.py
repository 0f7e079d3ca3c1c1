"""A file sink's log in `_spark_metadata`: its contents, and how it is rolled back or seeded.

A batch whose number is in the log is silently skipped when it runs again, and readers that ignore
the log still see files that are not listed in any entry. So a rewind removes the later entries and
moves their files aside. Nothing is deleted: the original log and all moved files are stored in
`_headgate/NAME` next to the log, a folder that Spark's readers ignore. Every step can be repeated
if a crash has interrupted it.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import orjson

from headgate_ground.files import NotPlain, read_bytes
from headgate_ground.tolerant import count
from headgate_ground.untrusted import remove_tree, status_of, walk
from queries.checkpoints.inside import Inside, copy_plain
from queries.checkpoints.logs import names_in
from queries.checkpoints.snapshot import CannotCopy, sync_tree
from queries.checkpoints.source_logs import numbered
from queries.domain.definitions.locations import NotALocation, canonical, local_path

LOG = "_spark_metadata"  # the folder in which Spark keeps the log
ASIDE = "_headgate"
#: `spark.sql.streaming.fileSink.log.compactInterval`, Spark's default.
COMPACT_EVERY = 10
EMPTY = "v1"  # an entry without files


@dataclass(frozen=True, slots=True)
class DroppedFiles:
    """The effect of removing later batches from a file sink's log."""

    batches: tuple[int, ...]  # removed entries, lowest first
    files: tuple[str, ...]  # relative paths of data files that are not listed in any kept entry
    bytes: int = 0  # of these files, as the log says


@dataclass(frozen=True, slots=True)
class SinkLog:
    """A file sink's log in a local folder: the log itself, or a copy of it."""

    folder: Path
    root: str  # the sink's path, as in the log's URIs: "/data/out"
    location: str  # where the log is, for messages

    def entries(self) -> dict[int, str]:
        """Return the entries by number; a compacted entry replaces the plain one."""
        return numbered_names(names_in(self.folder))

    def beyond(self, batch: int) -> DroppedFiles:
        """Return the entries after a batch; raise `CannotCopy` if the log does not reach it."""
        entries = self.entries()
        earlier_files = {n: name for n, name in entries.items() if n <= batch}
        base = max(
            (n for n, name in earlier_files.items() if name.endswith(".compact")), default=None
        )
        first = 0 if base is None else base
        compacted_batches = [
            n
            for n in range(first, min(batch, max(entries, default=-1)) + 1)
            if n not in earlier_files
        ]
        if compacted_batches:
            raise CannotCopy(
                f"The sink's log {self.location} cannot be rolled back to batch {batch}: entry "
                f"{compacted_batches[0]} has been compacted away.",
                way_out="Choose a later batch.",
            )
        mine = self._files(name for n, name in earlier_files.items() if n >= first)
        later = {n: name for n, name in entries.items() if n > batch}
        sizes = self._files(later.values())
        dropped_files = sorted(sizes.keys() - mine.keys())
        return DroppedFiles(
            tuple(sorted(later)), tuple(dropped_files), sum(sizes[path] for path in dropped_files)
        )

    def files(self) -> dict[str, int]:
        """Return the data files added by any entry, relative to the sink, with their bytes."""
        return self._files(self.entries().values())

    def _files(self, names: Iterable[str]) -> dict[str, int]:
        sizes = {}
        for name in names:
            for line in read_bytes(self.folder / name, within=self.folder).decode().split("\n")[1:]:
                if not line.strip():
                    continue
                added = orjson.loads(line)
                path = unquote(urlsplit(added["path"]).path)
                if path.startswith(f"{self.root}/") and ".." not in path.split("/"):
                    sizes[path[len(self.root) + 1 :]] = count(added.get("size")) or 0
        return sizes


def empty_log(batch: int) -> list[str]:
    """Return the names of the log of batches up to `batch` that wrote no files; -1 for none.

    Spark's next compaction reads the compacted entry below it, and fails if that entry is missing.
    """
    compacted = (batch + 1) // COMPACT_EVERY * COMPACT_EVERY - 1
    numbers = range(max(compacted, 0), batch + 1)
    return [f"{number}.compact" if number == compacted else str(number) for number in numbers]


def numbered_names(names: Iterable[str]) -> dict[int, str]:
    """Return a log's entries by number; a compacted entry replaces the plain one."""
    ordered = sorted(names)  # "9" before "9.compact", so that the compacted one wins
    return {number: name for name in ordered if (number := numbered(name)) is not None}


def is_part(path: str) -> bool:
    """Return whether a path in a sink is that of a data file that Spark's readers would read."""
    *folders, name = path.split("/")
    return name.startswith("part-") and not any(folder.startswith(("_", ".")) for folder in folders)


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
