"""Compare the offsets of two batches: what was read between them, by partition.

Spark writes a Kafka source's offset as {topic: {partition: next offset}} and a file source's as
{"logOffset": entry}. Any other source has its own form, which can only be compared for equality.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headgate_ground.tolerant.values import count, whole


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What was read from one partition: offsets from `start` up to, but not including, `end`."""

    source: str  # its place in the log ("0", "1"…), or its name
    topic: str
    partition: int
    start: int | None  # None: the partition was not known before
    end: int

    @property
    def records(self) -> int | None:
        """Number of offsets; None if its start is unknown or after its end.

        A topic that was deleted and recreated begins at 0 again.
        """
        return None if self.start is None or self.end < self.start else self.end - self.start


def is_kafka(offset: Any) -> bool:
    """Return whether an offset has the form {topic: {partition: offset}}."""
    return (
        isinstance(offset, Mapping)
        and bool(offset)
        and all(
            isinstance(partitions, Mapping)
            and all(whole(str(number)) is not None for number in partitions)
            and all(count(at) is not None for at in partitions.values())
            for partitions in offset.values()
        )
    )


def is_file(offset: Any) -> bool:
    """Return whether an offset is a file source's."""
    return isinstance(offset, Mapping) and set(offset) == {"logOffset"}


def ranges(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[OffsetRange]:
    """Return what Kafka sources read between two batches' offsets, in partition order."""
    offset_ranges = []
    for source, end in after.items():
        if not is_kafka(end):
            continue
        start = before.get(source)
        start_offsets: Mapping[str, Any] = (start if is_kafka(start) else None) or {}
        for topic in sorted(end):
            earlier = start_offsets.get(topic) or {}
            offset_ranges += [
                OffsetRange(source, topic, int(partition), earlier.get(partition), at)
                for partition, at in sorted(end[topic].items(), key=lambda pair: int(pair[0]))
            ]
    return offset_ranges


def records(offset_ranges: Iterable[OffsetRange]) -> int | None:
    """Return the total offsets in all ranges; None if there are none, or one is unknown."""
    counts = [offset_range.records for offset_range in offset_ranges]
    if not counts or None in counts:
        return None
    return sum(count for count in counts if count is not None)
