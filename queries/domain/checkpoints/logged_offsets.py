"""The offsets in a checkpoint's log: where a start resumes, and the records between two offsets.

Spark 4.3 reads the offsets of the batch before the newest one it finds; with async progress
tracking it uses whichever batch precedes that one in the log.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def missing_batch(begun: Sequence[int]) -> int | None:
    """Return the missing batch whose offsets Spark would need without async tracking.

    `begun` are the batches in `offsets/`, in order. The result is the batch before the newest if
    that one is missing; None if a start without async tracking would work.
    """
    if not begun or begun[-1] == 0:
        return None
    before = begun[-1] - 1
    return before if before not in begun[-2:] else None


def resumed_after(
    begun: Sequence[int], committed: Sequence[int], *, in_gaps: bool = True
) -> int | None:
    """Return the batch whose end offsets a start would resume from; None for the beginning.

    Spark resumes after the newest batch that has offsets, if that batch was committed too.
    Otherwise it reruns that batch, starting from the end of the previous batch in the log
    (`in_gaps`) or of the batch with the previous ID.
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
    """Return whether an offset is beyond another offset of the same source, in any partition."""
    between = records_between(start, end)
    if between is not None:
        return between > 0
    return bool(end != start)


def records_between(start: Any, end: Any) -> int | None:
    """Return how many offsets lie between `start` and `end`; None if they cannot be counted.

    Numbers and Kafka's objects of topics and partitions can be counted. A partition missing from
    `start` is counted from 0; a partition whose value is not a number cannot be counted.
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
