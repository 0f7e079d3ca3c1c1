"""A checkpoint's logs as the soak reads them: by itself, not with the code that it judges."""

import json
from bisect import bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from tests.soak.compare import Place


class Batches:
    """All batches of one checkpoint: what each read, and which were begun more than once.

    A batch writes `offsets/N` when it begins and `commits/N` when it is done; a replay writes
    only the latter.
    """

    def __init__(self, checkpoint: Path, topic: str) -> None:
        self._begun: dict[int, datetime] = _written(checkpoint / "offsets")
        self._done: dict[int, datetime] = _written(checkpoint / "commits")
        self.numbers = sorted(self._done)
        if self.numbers != list(range(len(self.numbers))):
            raise AssertionError(f"{checkpoint} does not hold all of its batches")
        self.watermarks: list[int] = []  # by batch, milliseconds
        self._ends: dict[int, list[int]] = {}  # by partition, in the order of batches
        for number in self.numbers:
            watermark, ends = _read(checkpoint / "offsets" / str(number), topic)
            self.watermarks.append(watermark)
            for partition in range(len(ends)):
                self._ends.setdefault(partition, []).append(ends[partition])

    def of(self, place: Place) -> int:
        """Return the batch that read a record."""
        partition, offset = place
        return bisect_right(self._ends[partition], offset)

    def replayed(self, starts: Iterable[datetime]) -> set[int]:
        """Return the batches that were begun again; `starts` are the times of the query's runs."""
        found = set()
        for start in starts:
            found |= {
                number
                for number in self.numbers
                if self._begun[number] < start <= self._done[number]
            }
        return found

    def next_commit(self, after: datetime) -> float:
        """Return the seconds from a moment to the first commit of a batch that began after it.

        What was in flight does not count: a JVM whose Python was killed may commit it. Raises
        `ValueError` where there is none: a soak that was read to its end has one.
        """
        return min(
            (done - after).total_seconds()
            for number, done in self._done.items()
            if self._begun[number] > after
        )


def last_commit(checkpoint: Path) -> int:
    """Return the newest committed batch, -1 where there is none."""
    return max(_written(checkpoint / "commits"), default=-1)


def position(checkpoint: Path, topic: str) -> tuple[int, dict[int, int]]:
    """Return the watermark (milliseconds) and the offsets by partition of the newest commit."""
    number = last_commit(checkpoint)
    return (0, {}) if number < 0 else _read(checkpoint / "offsets" / str(number), topic)


def _read(file: Path, topic: str) -> tuple[int, dict[int, int]]:
    _, header, source = file.read_text().splitlines()[:3]
    ends = json.loads(source)[topic]
    return (
        int(json.loads(header)["batchWatermarkMs"]),
        {int(partition): int(offset) for partition, offset in ends.items()},
    )


def _written(folder: Path) -> dict[int, datetime]:
    if not folder.is_dir():
        return {}
    return {
        int(file.name): datetime.fromtimestamp(file.stat().st_mtime, UTC)
        for file in folder.iterdir()
        if file.name.isdigit()
    }
