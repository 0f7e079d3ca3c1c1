"""What a checkpoint's own logs say: which batches were begun, which are committed.

The bus may drop events; `offsets/` and `commits/` cannot lie about what was executed. The
continuous mode shows its life nowhere else.
"""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from queries.checkpoints.logs import modified_at, names_in, newest_open, numbers_in
from queries.domain.checkpoints.lock_files import local_path
from queries.domain.checkpoints.logs import Unreadable, first_offsets, read_offsets
from queries.domain.kafka.lag import kafka_offsets
from queries.files import read_file


class Checkpoint:
    """The logs of one checkpoint, local or remote."""

    def __init__(self, location: str, spark: Any) -> None:
        path = local_path(location)
        self._path = Path(path) if path is not None else None
        self._location = location.rstrip("/")
        self._spark = spark

    @property
    def local(self) -> bool:
        """Whether looking costs microseconds."""
        return self._path is not None

    def last_commit(self) -> int | None:
        """Return the newest committed batch, None where there is none."""
        return self._last("commits")

    def committed_after(self, batch: int | None) -> list[int]:
        """Return the committed batches beyond one (None: all that the log holds), oldest first."""
        return [each for each in self._batches("commits") if batch is None or each > batch]

    def written_at(self, name: str) -> datetime | None:
        """Return when a file such as `commits/7` was written, by its own time; None: not there."""
        if self._path is not None:
            return modified_at(self._path / name)
        system, place = self._remote(name)
        if not system.exists(place):
            return None
        changed_ms = system.getFileStatus(place).getModificationTime()
        return datetime.fromtimestamp(changed_ms / 1000, UTC)

    def in_flight(self) -> int | None:
        """Return the batch that was begun and has not committed, None where there is none."""
        return newest_open(self._last("offsets"), self._last("commits"))

    def kafka_topics(self) -> set[str]:
        """Return the Kafka topics that the checkpoint has offsets of, first offsets included."""
        newest = self._last("offsets")
        found = list(self._offsets(newest).values()) if newest is not None else []
        for name in self._sources():
            with suppress(UnicodeDecodeError):  # not a log of Kafka's
                found.append(first_offsets(self._read(f"sources/{name}/0")))
        return {topic for offset in found for topic in kafka_offsets(offset)}

    def offsets(self, batch: int) -> dict[str, Any]:
        """Return {source: {"start": …, "end": …}} of a batch, as its log and the one before say.

        Sources are named by their place, "0", "1"…, unless the log names them itself.
        """
        before = self._offsets(batch - 1) if batch > 0 else {}
        return {
            source: {"start": before.get(source), "end": end}
            for source, end in self._offsets(batch).items()
        }

    def _offsets(self, batch: int) -> dict[str, Any]:
        try:
            return read_offsets(batch, self._read(f"offsets/{batch}")).sources
        except Unreadable:  # purged, or cut by a crash: nothing is known
            return {}

    def _sources(self) -> list[str]:
        if self._path is not None:
            return names_in(self._path / "sources")
        system, place = self._remote("sources")
        if not system.exists(place):
            return []
        return [str(status.getPath().getName()) for status in system.listStatus(place)]

    def _last(self, folder: str) -> int | None:
        return max(self._batches(folder), default=None)

    def _batches(self, folder: str) -> list[int]:
        if self._path is not None:
            return numbers_in(self._path / folder)
        system, place = self._remote(folder)
        if not system.exists(place):
            return []
        names = [str(status.getPath().getName()) for status in system.listStatus(place)]
        return sorted(int(name) for name in names if name.isdigit())

    def _read(self, name: str) -> str:
        if self._path is not None:
            return read_file(self._path / name) or ""
        return read_remote(*self._remote(name)) or ""

    def _remote(self, name: str) -> tuple[Any, Any]:
        return remote(self._spark.sparkContext, f"{self._location}/{name}")


def remote(context: Any, path: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a path on no local one, and the path as it takes it."""
    place = context._jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(context._jsc.hadoopConfiguration()), place


def read_remote(system: Any, place: Any) -> str | None:
    """Return the text of a remote file; None where it is not there."""
    if not system.exists(place):
        return None
    stream = system.open(place)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()
