"""Read a driver's spool; this defines the format that drivers write and that repairs read.

A spool is a folder of segments named by their first sequence number; each line is `SEQ<tab>ENTRY`,
with the entry as sent to the stream. Segments are only appended to, and deleted only as entire
files.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from headgate_ground.tolerant import whole

FOLDER = "spool"  # in the driver's directory
SUFFIX = ".events"
#: Bytes of a segment, and segments of a spool that are read: twice what drivers write.
MOST_OF_SEGMENT = 8 * 1024 * 1024
MOST_SEGMENTS = 1000

#: Yields (seq, entry) from the spool of an epoch's driver, from a number on and in order; nothing
#: if it is gone.
Spooled = Callable[[int, int], Iterable[tuple[int, bytes]]]


def segment_name(seq: int) -> str:
    """Return the file name of the segment that starts with this number."""
    return f"{seq:020d}{SUFFIX}"


def line(seq: int, event: bytes) -> bytes:
    """Return the line of one entry."""
    return b"%d\t%s\n" % (seq, event)


def read_segment(
    path: Path, read: Callable[[Path], bytes] = Path.read_bytes
) -> Iterator[tuple[int, bytes]]:
    """Yield (seq, entry) for each complete line; nothing if the segment has just been removed."""
    try:
        data = read(path)
    except FileNotFoundError:
        return
    for text in data.split(b"\n")[:-1]:
        number, tab, event = text.partition(b"\t")
        seq = whole(number)
        if tab and seq is not None and event.endswith(b"}"):
            yield seq, event


def read_from(
    folder: Path,
    first: int,
    *,
    names: Callable[[Path], list[str]] = os.listdir,
    read: Callable[[Path], bytes] = Path.read_bytes,
) -> Iterator[tuple[int, bytes]]:
    """Yield (seq, entry) for a spool's events from number `first` on, in order.

    `names` returns the folder's entries, and `read` a segment's content: the driver's code may have
    replaced either with anything.
    """
    named = (folder / name for name in names(folder) if name.endswith(SUFFIX))
    segments = sorted(path for path in named if whole(path.stem) is not None)[-MOST_SEGMENTS:]
    for segment, following in zip_longest(segments, segments[1:]):
        if following is None or int(following.stem) > first:
            yield from (entry for entry in read_segment(segment, read) if entry[0] >= first)
