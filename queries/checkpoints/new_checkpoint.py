"""Build a checkpoint without state whose sources begin at chosen offsets.

A stateless query keeps its batch numbers: the new log says that the old log's newest batch has
committed with the desired offsets, so a file sink's log continues, and code that checks batch
numbers never sees a number twice. A stateful query begins at batch 0, because otherwise Spark would
require the state after a committed batch; its Kafka sources find their first offsets in the place
where the source itself stores them.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from headgate_ground.files import open_folder, read_bytes
from queries.checkpoints.batches import ELSEWHERE
from queries.checkpoints.inside import Inside
from queries.checkpoints.logs import CheckpointLogs, names_in
from queries.checkpoints.snapshot import CannotCopy, building


@dataclass(frozen=True, slots=True)
class SourceStart:
    """The position at which a source should begin."""

    source: str  # its place in the log ("0", "1"…), or its name
    offset: Any = None  # Kafka: {topic: {partition: offset}}; None: the source's very beginning
    passed: tuple[tuple[str, int], ...] = ()  # files that count as read: (path, modified in ms)


@dataclass(frozen=True, slots=True)
class Fresh:
    """The result of building a checkpoint."""

    batch: int | None  # the batch that counts as committed; None: the first will be batch 0


def is_stateful(logs: CheckpointLogs) -> bool:
    """Return whether the checkpoint contains state of any operator."""
    return bool(names_in(logs.root / "state"))


def fresh(
    logs: CheckpointLogs, destination: Path, starts: Sequence[SourceStart], *, now_ms: int
) -> Fresh:
    """Build the folder `destination` for the query whose checkpoint has `logs`.

    Raises `CannotCopy` if no batch has started in the old checkpoint, or if a stateful query's file
    source should skip files; raises OSError if `destination` exists.
    """
    newest = max(logs.begun(), default=None)
    offsets = logs.offsets(newest) if newest is not None else None
    if newest is None or offsets is None:
        raise CannotCopy(
            f"No batch has started in {logs.root}.", way_out="Start the query instead."
        )
    with building(destination, logs.root) as draft:
        identity = logs.root / "metadata"
        draft.write("metadata", read_bytes(identity, within=logs.root).decode())
        if not is_stateful(logs):
            _logs(draft, newest, logs, starts, now_ms)
            return Fresh(newest)
        if any(start.passed for start in starts):
            raise CannotCopy(
                "The file source of a stateful query can only start with its first file.",
                way_out=ELSEWHERE,
            )
        for start in starts:
            if start.offset is not None:
                _first_offsets(draft, start)
        return Fresh(None)


def fresh_without_logs(destination: Path, starts: Sequence[SourceStart]) -> None:
    """Build the folder for a query whose old checkpoint is not accessible: batch 0, no state.

    Raises OSError if `destination` exists.
    """
    os.close(open_folder(destination.parent, create=True))
    with building(destination, destination.parent) as draft:
        for start in starts:
            if start.offset is not None:
                _first_offsets(draft, start)


def _first_offsets(draft: Inside, start: SourceStart) -> None:
    """Write a Kafka source's first offsets in its own format: a zero byte, the version, JSON.

    Source: Spark's KafkaSourceInitialOffsetWriter.
    """
    draft.write(f"sources/{start.source}/0", f"\0v1\n{_json(start.offset)}")


def _logs(
    draft: Inside, batch: int, logs: CheckpointLogs, starts: Sequence[SourceStart], now_ms: int
) -> None:
    """Record `batch` as committed, ending at the offsets at which the sources should begin."""
    begun = logs.root / "offsets" / str(batch)
    text = read_bytes(begun, within=logs.root).decode().rstrip("\n")
    version, about, *sources = text.split("\n")
    if about.strip():
        metadata = orjson.loads(about)
        about = _json({**metadata, "batchWatermarkMs": 0, "batchTimestampMs": now_ms})
    wanted = {start.source: start for start in starts}
    lines = []
    for index, line in enumerate(sources):
        name = line.partition(":")[0] if version == "v2" else ""
        start = wanted.get(name or str(index), SourceStart(name or str(index)))
        lines.append(_line(draft, start, name))
    written = "\n".join([version, about, *lines])
    for number in {batch, max(batch - 1, 0)}:
        draft.write(f"offsets/{number}", written)
    draft.write(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')


def _line(draft: Inside, start: SourceStart, name: str) -> str:
    offset = start.offset
    if start.passed:
        entries = [
            _json({"path": path, "timestamp": modified, "batchId": 0})
            for path, modified in start.passed
        ]
        draft.write(f"sources/{start.source}/0", "\n".join(["v1", *entries]))
        offset = {"logOffset": 0}
    written = "-" if offset is None else _json(offset)
    return f"{name}:{written}" if name else written


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
