"""Which offsets a checkpoint's log holds: where a start resumes, and how many lie between two.

Spark 4.3 reads the offsets of the batch before the newest one it finds; with async progress
tracking it takes whichever batch precedes that one in the log.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def missing_batch(begun: Sequence[int]) -> int | None:
    """Return the missing batch whose offsets Spark would need without async tracking.

    `begun` are the batches that `offsets/` holds, in order. It is the one before the newest,
    if that is missing; None where a start without async tracking would work.
    """
    if not begun or begun[-1] == 0:
        return None
    before = begun[-1] - 1
    return before if before not in begun[-2:] else None


def resumed_after(
    begun: Sequence[int], committed: Sequence[int], *, in_gaps: bool = True
) -> int | None:
    """Return the batch whose end offsets a start would resume from; None: from the beginning.

    Spark resumes after the newest batch it has offsets of, if that one has committed too;
    otherwise it runs that batch again, from the end of the one before it in the log (`in_gaps`),
    or of the one with the id before.
    """
    if not begun:
        return None
    newest = begun[-1]
    if newest in committed:
        return newest
    if in_gaps:
        return begun[-2] if len(begun) > 1 else None
    return newest - 1 if newest else None


def beyond(end: Any, start: Any) -> bool:
    """Return whether an offset is beyond another of the same source, in any partition."""
    between = records_between(start, end)
    if between is not None:
        return between > 0
    return bool(end != start)


def records_between(start: Any, end: Any) -> int | None:
    """Return how many offsets lie from `start` to `end`; None where they cannot be counted.

    Counted are numbers, and objects of topics with partitions as Kafka has them. A partition
    that `start` does not name is counted from 0 only where it is not there at all.
    """
    if _number(start) and _number(end):
        return max(0, int(end) - int(start))
    if start is None or not isinstance(start, Mapping) or not isinstance(end, Mapping):
        return None
    total = 0
    for topic, partitions in end.items():
        before = start.get(topic, {})
        if not isinstance(partitions, Mapping) or not isinstance(before, Mapping):
            return None
        for partition, offset in partitions.items():
            first = before.get(partition, 0)
            if not _number(offset) or not _number(first):
                return None
            total += max(0, int(offset) - int(first))
    return total


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
