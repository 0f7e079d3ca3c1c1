"""Decide about a file sink's log, wherever it is: what a batch's log has, and what is after it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import orjson

from headgate_ground.files import read_bytes
from headgate_ground.tolerant.values import count
from queries.checkpoints.logs import names_in
from queries.checkpoints.snapshot import CannotCopy
from queries.checkpoints.source_logs import numbered

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
        """Return what is after a batch; raise `CannotCopy` if the log does not reach it."""
        entries = self.entries()
        earlier = {n: name for n, name in entries.items() if n <= batch}
        base = max((n for n, name in earlier.items() if name.endswith(".compact")), default=None)
        first = 0 if base is None else base
        compacted = [
            n for n in range(first, min(batch, max(entries, default=-1)) + 1) if n not in earlier
        ]
        if compacted:
            raise CannotCopy(
                f"The sink's log {self.location} cannot be rolled back to batch {batch}: entry "
                f"{compacted[0]} has been compacted away.",
                way_out="Choose a later batch.",
            )
        mine = self._files(name for n, name in earlier.items() if n >= first)
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
