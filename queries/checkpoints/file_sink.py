"""The log that a file sink keeps in `_spark_metadata`: put back to a batch, seeded, moved aside.

A batch whose number is in the log is skipped in silence when it is run again, and a file
that no entry names is still seen by readers that ignore the log. So a rewind takes the later
entries out and moves their files aside. Nothing is deleted: the log as it was and all that is
moved are in `_headgate/NAME` next to it, a folder that Spark's readers ignore.
Every step can be taken again after a crash in the middle of it.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

from queries.acting import acting_in
from queries.checkpoints.inside import Inside, copy_plain
from queries.checkpoints.logs import names_in
from queries.checkpoints.snapshot import CannotCopy, sync_tree
from queries.checkpoints.source_logs import numbered
from queries.domain.definitions.locations import NotALocation, canonical, local_path
from queries.files import NotPlain, read_bytes, sync

P = ParamSpec("P")
T = TypeVar("T")

LOG = "_spark_metadata"  # the folder in which Spark keeps it
ASIDE = "_headgate"
#: `spark.sql.streaming.fileSink.log.compactInterval`, Spark's default.
COMPACT_EVERY = 10


@dataclass(frozen=True, slots=True)
class Dropped:
    """What taking later batches out of a file sink's log means."""

    batches: tuple[int, ...]  # entries that go, lowest first
    files: tuple[str, ...]  # relative paths of data files that no kept entry names


def _as_owner(
    change: Callable[Concatenate["FileSink", P], T],
) -> Callable[Concatenate["FileSink", P], T]:
    """Let a change be made with the rights of the sink's owner, where that is another account."""

    @wraps(change)
    def changed(sink: "FileSink", /, *args: P.args, **kwargs: P.kwargs) -> T:
        with acting_in(sink.root, sink.root):
            return change(sink, *args, **kwargs)

    return changed


@dataclass(frozen=True, slots=True)
class FileSink:
    """One file sink on the local file system."""

    root: Path

    @classmethod
    def at(cls, path: str) -> "FileSink | None":
        """Return the sink of an option `path`; None where it is not on a local file system."""
        try:
            found = local_path(canonical(path))
        except NotALocation:
            return None
        return cls(Path(found).resolve()) if found else None

    @property
    def log(self) -> Path:
        """The folder of the log."""
        return self.root / LOG

    def newest(self) -> int | None:
        """Return the newest batch in the log; None where there is no log."""
        return max(_entries(self.log), default=None)

    def beyond(self, batch: int, *, log: Path | None = None) -> Dropped:
        """Return what is after a batch; raise `CannotCopy` where the log is too short.

        `log` is an earlier form of the log, where it has been put aside already.
        """
        folder = log or self.log
        entries = _entries(folder)
        kept = {n: name for n, name in entries.items() if n <= batch}
        base = max((n for n, name in kept.items() if name.endswith(".compact")), default=None)
        first = 0 if base is None else base
        gone = [n for n in range(first, min(batch, max(entries, default=-1)) + 1) if n not in kept]
        if gone:
            raise CannotCopy(
                f"The sink's log {folder} cannot be rolled back to batch {batch}: entry {gone[0]} "
                "has been compacted away.",
                way_out="Choose a later batch.",
            )
        mine = {path for n in kept if n >= first for path in self._named(folder / kept[n])}
        later = {n: name for n, name in entries.items() if n > batch}
        others = {path for name in later.values() for path in self._named(folder / name)}
        return Dropped(tuple(sorted(later)), tuple(sorted(others - mine)))

    @_as_owner
    def keep_log(self, name: str) -> Path:
        """Put a copy of the log as it is now aside, once; return where."""
        aside = self.root / ASIDE / name / LOG
        if aside.exists() or not self.log.exists():
            return aside
        building = f"{LOG}.building"
        with self._aside(name) as kept:
            shutil.rmtree(building, ignore_errors=True, dir_fd=kept.folder(""))
            for entry in names_in(self.log):
                copy_plain(self.log / entry, kept, f"{building}/{entry}")
            kept.folder(building)
            sync_tree(aside.with_name(building))
            kept.rename(building, LOG)
        sync(aside.parent)
        return aside

    @_as_owner
    def put_back(self, batch: int, name: str) -> Dropped:
        """Make the log and the data those of a batch; what is later is moved aside.

        The highest entry goes first, so a reader sees an earlier state and never a hole; then
        the files. May be called again with the same name until it has come to its end.
        """
        before = self.keep_log(name)
        if not before.exists():
            return Dropped((), ())
        dropped = self.beyond(batch, log=before)
        entries = _entries(self.log)
        with self._aside(name) as aside, Inside(self.root) as sink:
            for number in sorted((n for n in entries if n > batch), reverse=True):
                for gone in (f".{entries[number]}.crc", entries[number]):
                    with suppress(FileNotFoundError):
                        sink.remove(f"{LOG}/{gone}")
            sync(self.log)
            for path in [*dropped.files, *self._unnamed(before)]:
                _move(sink, aside, path)
        return dropped

    @_as_owner
    def move_aside(self, name: str) -> None:
        """Move log and data files aside whole, so that the sink is as if never written."""
        with self._aside(name) as aside, Inside(self.root) as sink:
            aside.take(sink, LOG)
            for path in sorted(self._all_named(aside.root / LOG)):
                _move(sink, aside, path)
        sync(self.root)

    @_as_owner
    def seed(self, batch: int) -> None:
        """Write an empty log up to a batch, for a query that continues there with a new sink."""
        if self.log.exists():
            return
        draft = self.root / f"{LOG}.building"
        shutil.rmtree(draft, ignore_errors=True)
        write_empty_log(draft, batch)
        sync_tree(draft)
        draft.rename(self.log)
        sync(self.root)

    # --- inside -----------------------------------------------------------------------

    @contextmanager
    def _aside(self, name: str) -> Iterator[Inside]:
        """Yield the folder for what is moved aside: in the sink, whatever links lie there."""
        with Inside(self.root) as sink:
            made = sink.folder(f"{ASIDE}/{name}")
            with Inside(self.root / ASIDE / name, made) as aside:
                yield aside

    def _named(self, entry: Path) -> Iterator[str]:
        """Yield the data files that an entry adds, relative to the sink."""
        root = str(self.root.resolve())
        for line in read_bytes(entry).decode().split("\n")[1:]:
            if not line.strip():
                continue
            path = unquote(urlsplit(json.loads(line)["path"]).path)
            if path.startswith(f"{root}/") and ".." not in path.split("/"):
                yield path[len(root) + 1 :]

    def _all_named(self, log: Path) -> set[str]:
        """Return the data files that any entry of a log adds."""
        return {path for name in _entries(log).values() for path in self._named(log / name)}

    def _unnamed(self, before: Path) -> list[str]:
        """Return part files of a batch that never reached the log: it was interrupted.

        They are younger than the log's last entry, and no entry ever named them.
        """
        entries = _entries(before)
        if not entries:
            return []
        last = (before / entries[max(entries)]).stat().st_mtime
        named = self._all_named(before)
        found = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = [each for each in folders if not each.startswith(("_", "."))]
            for name in names:
                place = Path(folder) / name
                relative = str(place.relative_to(self.root))
                if name.startswith("part-") and relative not in named and _younger(place, last):
                    found.append(relative)
        return found


def write_empty_log(log: Path, batch: int) -> None:
    """Write the log of batches up to `batch` that wrote no file; -1 for none.

    Spark's next compaction reads the compacted entry below it, and fails where it is missing.
    """
    compacted = (batch + 1) // COMPACT_EVERY * COMPACT_EVERY - 1
    with Inside(log) as made:
        for number in range(max(compacted, 0), batch + 1):
            made.write(f"{number}.compact" if number == compacted else str(number), "v1")


def _entries(log: Path) -> dict[int, str]:
    """Return the log's entries by number; a compacted one replaces the entry of its number."""
    names = sorted(names_in(log))  # "9" before "9.compact", which then counts
    return {number: name for name in names if (number := numbered(name)) is not None}


def _move(sink: Inside, aside: Inside, path: str) -> None:
    """Move a file with its checksum; one that is moved already, gone, or behind a link, is left."""
    folder, _, name = path.rpartition("/")
    with suppress(NotPlain):
        aside.take(sink, f"{folder}/.{name}.crc".lstrip("/"))
        aside.take(sink, path)


def _younger(place: Path, than: float) -> bool:
    try:
        return place.stat().st_mtime > than
    except FileNotFoundError:
        return False
