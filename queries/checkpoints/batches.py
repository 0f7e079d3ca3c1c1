"""Read the batches in a checkpoint from its logs, list a source's files, choose a batch to
execute again.

Files and folders whose names begin with "_" or "." are skipped; a path can contain wildcards, and
folders are searched recursively.

This works for every trigger: micro-batches have their own time and watermark, continuous epochs
have only the times of their files, and async progress tracking leaves gaps.
"""

import bisect
import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

from headgate_ground.tolerant import at_ms, is_after_9999
from queries.checkpoints import source_logs
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.snapshot import CannotCopy
from queries.domain.checkpoints.logs import Offsets, UnreadableLog, begun_at, is_upgrade
from queries.domain.definitions.locations import local_path
from queries.domain.kafka.offsets import OffsetRange, ranges, records

#: The alternatives if a source cannot start elsewhere.
ELSEWHERE = "Reset to earliest, or rewind to a batch."
#: Maximum number of files listed at once.
AT_MOST = 200_000
#: Characters that Java's URI leaves unescaped in a path, in addition to letters and digits.
_LEGAL = "/;:@&=+$,_-!.~'()*"


def files_of_source(path: str) -> list[tuple[str, int]]:
    """Return (URI, modified in ms) for each file under a source's path, oldest first.

    Raises `CannotCopy` if the path is not on a local file system or contains too many files.
    """
    pattern = local(path)
    if pattern is None:
        raise CannotCopy(
            f"{path} is not on a local file system, so its files cannot be listed.",
            way_out=ELSEWHERE,
        )
    files: list[tuple[str, int]] = []
    for root in glob.glob(pattern):
        for file in _files(Path(root)):
            try:
                modified = file.stat().st_mtime_ns // 1_000_000
            except FileNotFoundError:
                continue
            files.append((f"file://{_escaped(str(file))}", modified))
            if len(files) > AT_MOST:
                raise CannotCopy(f"{path} contains more than {AT_MOST} files.")
    return sorted(files, key=lambda file_and_time: (file_and_time[1], file_and_time[0]))


def exists(uri: str) -> bool | None:
    """Return whether a file read by a source still exists; None if the file is not local."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        return None
    return os.path.exists(unquote(parts.path))


def local(path: str) -> str | None:
    """Return a source's path on the local file system, with its wildcards; None if not local."""
    if path.startswith("/"):
        return path
    if path.startswith("file:"):
        rest = path.removeprefix("file:")
        return "/" + rest.lstrip("/")
    return local_path(path)


def _escaped(path: str) -> str:
    """Return a path as Java's URI writes it, because Spark recognizes files by this exact string.

    Source: java.net.URI, "path" and "other" characters.
    """
    return "".join(
        letter if not letter.isascii() and letter.isprintable() else quote(letter, safe=_LEGAL)
        for letter in path
    )


def _files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        for name in names:
            if not name.startswith(("_", ".")):
                yield Path(folder) / name


#: Maximum number of batches without rows (watermark only) to skip.
LOOKED_AT = 5


def batch_to_replay(logs: CheckpointLogs) -> int | None:
    """Return the newest committed batch that read data, or the newest one if none is near.

    None if no batch was committed.
    """
    committed = logs.committed()
    for batch in reversed(committed[-LOOKED_AT:]):
        try:
            now, before = logs.offsets(batch), logs.offsets(batch - 1)
        except UnreadableLog:
            break
        if now is not None and begun_at(before, now) != now.sources:
            return batch
    return committed[-1] if committed else None


def is_continuous(logs: CheckpointLogs, batch: int) -> bool:
    """Return whether continuous processing wrote the batch; micro-batches cannot continue then."""
    offsets = logs.readable_offsets(batch)
    return offsets is not None and offsets.timestamp_ms is None


def pinned_configuration(logs: CheckpointLogs, batch: int) -> dict[str, str]:
    """Return the configuration in the batch's offset log."""
    offsets = logs.readable_offsets(batch)
    return offsets.conf if offsets is not None else {}


#: "uncommitted": begun without a commit, although later batches have one (async progress tracking).
State = Literal["committed", "in flight", "uncommitted", "unreadable"]
#: Maximum files listed for a batch; if there are more, only their count is shown.
FILES_AT_MOST = 500


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """One batch, according to the logs."""

    number: int
    state: State
    begun_at: datetime | None
    committed_at: datetime | None
    watermark: datetime | None  # the watermark during the batch
    sources: dict[str, Any]  # place or name -> end offset as written by Spark
    ranges: tuple[OffsetRange, ...]  # Kafka: what it read from each partition
    records: int | None  # Kafka: their total, if every start is known
    left_out_before: int  # preceding batches missing from the log, newer than its oldest one
    problem: str = ""
    watermark_after_9999: bool = False  # so every row is late
    upgraded: bool = False  # the log began to name its sources with this batch

    @property
    def took_s(self) -> float | None:
        """Return the seconds from the batch's offsets to its commit, based on the files' times."""
        if self.begun_at is None or self.committed_at is None:
            return None
        return max(0.0, (self.committed_at - self.begun_at).total_seconds())


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file that a batch read."""

    source: str
    path: str  # for an unreadable line, its position
    modified_at: datetime | None  # None: not in the log
    exists: bool | None  # whether it still exists; None: not on a local file system
    problem: str = ""


@dataclass(frozen=True, slots=True)
class BatchDifference:
    """The difference between two batches of a checkpoint."""

    earlier: LoggedBatch
    other: LoggedBatch
    ranges: tuple[OffsetRange, ...]  # what was read after `earlier`, up to and including `other`
    records: int | None
    conf: tuple[tuple[str, str, str], ...]  # (key, before, after) of differing pinned configuration


def page(logs: CheckpointLogs, *, before: int | None = None, limit: int = 50) -> list[LoggedBatch]:
    """Return the batches, newest first; with `before`, only the earlier ones."""
    begun = logs.begun()
    committed = set(logs.committed())
    upto = len(begun) if before is None else bisect.bisect_left(begun, before)
    chosen = range(max(0, upto - limit), upto)
    return [_batch(logs, begun, index, committed) for index in reversed(chosen)]


def batch_by_number(logs: CheckpointLogs, number: int) -> LoggedBatch | None:
    """Return one batch; None if the log does not contain it."""
    begun = logs.begun()
    index = bisect.bisect_left(begun, number)
    if index == len(begun) or begun[index] != number:
        return None
    return _batch(logs, begun, index, set(logs.committed()))


def files_of(logs: CheckpointLogs, number: int) -> list[BatchFile]:
    """Return the files that a batch read from all its file sources, at most `FILES_AT_MOST`."""
    begun = logs.begun()
    index = bisect.bisect_left(begun, number)
    earlier = begun[index - 1] if index > 0 else None
    if earlier is None and number > 0:
        return []  # its beginning was purged: what is left is not only from this batch
    return files_between(logs, earlier, number)


def read_nothing(logs: CheckpointLogs, number: int) -> bool:
    """Return whether a batch ended at the previous batch's offsets.

    Such a batch only moves the watermark. False if one of the two batches cannot be read.
    """
    before, after = logs.readable_offsets(number - 1), logs.readable_offsets(number)
    return before is not None and after is not None and begun_at(before, after) == after.sources


def files_between(logs: CheckpointLogs, earlier: int | None, number: int) -> list[BatchFile]:
    """Return the files read after batch `earlier`, up to and including batch `number`.

    If `earlier` is None, return all files from the beginning. The result has at most
    `FILES_AT_MOST` files.
    """
    after = logs.readable_offsets(number)
    before = logs.readable_offsets(earlier) if earlier is not None else None
    if after is None or (before is None and earlier is not None):
        return []
    files: list[BatchFile] = []
    starts = begun_at(before, after)
    for source, end in after.sources.items():
        upto = source_logs.log_offset(end)
        if upto is None:
            continue
        start = source_logs.log_offset(starts.get(source))
        read = source_logs.entries(
            logs.root / "sources" / source,
            -1 if start is None else start,
            upto,
            limit=FILES_AT_MOST - len(files),
        )
        files += [
            BatchFile(
                source,
                read_file.path,
                at_ms(read_file.modified_ms),
                exists(read_file.path),
                read_file.problem,
            )
            for read_file in read
        ]
    return files


def compare(logs: CheckpointLogs, first: int, second: int) -> BatchDifference | None:
    """Return two batches and the files read between them; None if one is missing from the log."""
    low, high = sorted((first, second))
    earlier, other = batch_by_number(logs, low), batch_by_number(logs, high)
    before, after = logs.readable_offsets(low), logs.readable_offsets(high)
    if earlier is None or other is None or before is None or after is None:
        return None
    offset_ranges = tuple(ranges(begun_at(before, after), after.sources))
    return BatchDifference(
        earlier=earlier,
        other=other,
        ranges=offset_ranges,
        records=records(offset_ranges),
        conf=tuple(
            (key, before.conf.get(key, ""), after.conf.get(key, ""))
            for key in sorted(before.conf.keys() | after.conf.keys())
            if before.conf.get(key) != after.conf.get(key)
        ),
    )


def pinned(logs: CheckpointLogs) -> dict[str, str]:
    """Return the configuration pinned by the newest batch; {} if there is no batch."""
    newest = max(logs.begun(), default=None)
    return {} if newest is None else pinned_configuration(logs, newest)


def _batch(
    logs: CheckpointLogs, begun: Sequence[int], index: int, committed: set[int]
) -> LoggedBatch:
    number = begun[index]
    earlier = begun[index - 1] if index > 0 else None
    offsets, problem = _read(logs, number, is_committed=number in committed)
    before = logs.readable_offsets(earlier) if earlier is not None else None
    sources = offsets.sources if offsets else {}
    has_start = before is not None or number == 0
    offset_ranges = (
        tuple(ranges(begun_at(before, offsets), sources)) if offsets and has_start else ()
    )
    state: State = "in flight" if number > max(committed, default=-1) else "uncommitted"
    if number in committed:
        state = "committed"
    stamp = offsets.timestamp_ms if offsets else None
    mark = offsets.watermark_ms if offsets else None
    return LoggedBatch(
        number=number,
        state="unreadable" if problem else state,
        begun_at=at_ms(stamp) if stamp else logs.written_at("offsets", number),
        committed_at=logs.written_at("commits", number) if number in committed else None,
        watermark=at_ms(mark) if mark else None,
        sources=sources,
        ranges=offset_ranges,
        records=records(offset_ranges),
        left_out_before=number - earlier - 1 if earlier is not None else 0,
        problem=problem,
        watermark_after_9999=is_after_9999(mark),
        upgraded=is_upgrade(before, offsets),
    )


def _read(logs: CheckpointLogs, number: int, *, is_committed: bool) -> tuple[Offsets | None, str]:
    """Return the contents of a batch's two files, and the problem if one of them is unreadable."""
    offsets, problem = None, ""
    try:
        offsets = logs.offsets(number)
        if is_committed:
            logs.commit(number)
    except UnreadableLog as error:
        problem = error.message
    return offsets, problem
