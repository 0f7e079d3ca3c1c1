"""Keep a driver's events on disk until Redis has them, and a while longer for repairs."""

import os
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from headgate_ground.spool import line, read_segment, segment_name

SEGMENT_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Segment:
    """One file of a spool."""

    path: Path
    first: int
    last: int
    size: int = 0
    count: int = 0


class Spool:
    """The writing side of a spool; its owner's lock protects it from concurrent use."""

    def __init__(self, folder: Path, *, limit: int, sent_limit: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._limit = limit  # bytes, sent and unsent together
        self._sent_limit = sent_limit  # bytes of completely sent segments
        self._segments: list[Segment] = []
        self._file: FileIO | None = None

    def append(self, seq: int, event: bytes, *, sent_to: int) -> list[Segment]:
        """Write one event; return the segments with unsent events that were removed to make space.

        `sent_to` is the last sequence number that Redis has. Raises OSError if the disk does not
        accept the event, which is then not stored in the spool.
        """
        data = line(seq, event)
        segment = self._segments[-1] if self._segments else None
        if segment is None or self._file is None or segment.size + len(data) > SEGMENT_BYTES:
            segment = self._open(seq)
        assert self._file is not None
        written = self._file.write(data)
        if written != len(data):
            self.close()  # a torn line ends its segment; readers skip it
            raise OSError("the disk accepted only part of an event")
        segment.last, segment.count = seq, segment.count + 1
        segment.size += len(data)
        return self._make_room(sent_to)

    def segment_from(self, seq: int) -> list[tuple[int, bytes]]:
        """Return the events numbered `seq` or higher in the first segment that has any."""
        for segment in self._segments:
            if segment.last >= seq:
                events = [entry for entry in read_segment(segment.path) if entry[0] >= seq]
                if events:
                    return events
        return []

    def _open(self, seq: int) -> Segment:
        self.close()
        path = self._folder / segment_name(seq)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._file = FileIO(descriptor, "a")
        segment = Segment(path, seq, seq - 1)
        self._segments.append(segment)
        return segment

    def close(self) -> None:
        """Close the open segment; the files stay."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _make_room(self, sent_to: int) -> list[Segment]:
        """Remove sent segments above their share, then the oldest segments above the limit."""
        sent = [segment for segment in self._segments[:-1] if segment.last <= sent_to]
        surplus = sum(segment.size for segment in sent) - self._sent_limit
        for segment in sent:
            if surplus <= 0:
                break
            surplus -= segment.size
            self._remove(segment)
        lost = []
        while len(self._segments) > 1 and self._size() > self._limit:
            oldest = self._segments[0]
            if oldest.last > sent_to:
                lost.append(oldest)
            self._remove(oldest)
        return lost

    def _size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def _remove(self, segment: Segment) -> None:
        self._segments.remove(segment)
        segment.path.unlink(missing_ok=True)
