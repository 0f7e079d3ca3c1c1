"""The JSON in which Spark's Kafka source names partitions and offsets, and the ranges between two.

assign                      {"flights": [0, 1]}
startingOffsets             earliest, latest, or {"flights": {"0": 23, "1": -2}}
startingOffsetsByTimestamp  {"flights": {"0": 1735689600000, "1": 1735689600000}}

Spark writes a Kafka source's offset as {topic: {partition: next offset}} and a file source's as
{"logOffset": entry}. Any other source has its own form, which can only be compared for equality.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headgate_ground.tolerant import count, whole
from queries.domain.errors import Problem

EARLIEST = -2
_ASSIGN = 'Write topics with their partitions: {"flights": [0, 1]}.'
_OFFSETS = (
    'Write "earliest", "latest", or an offset for each partition: {"flights": {"0": 23, "1": -2}}; '
    "-2 is the earliest, -1 the latest."
)
_TIMES = (
    "Write milliseconds since 1970 for each partition: "
    '{"flights": {"0": 1735689600000, "1": 1735689600000}}.'
)

#: topic -> partition -> offset, or milliseconds since 1970
Places = dict[str, dict[int, int]]
Partition = tuple[str, int | None]  # None: the whole topic


class NotPlaces(ValueError):
    """The value is not the expected JSON; the message says what it is instead."""


def offsets_problem(field: str, value: str) -> Problem | None:
    """Return what is wrong with `startingOffsets`, or None."""
    if value.strip().lower() in ("earliest", "latest"):
        return None
    return _problem(field, value, EARLIEST, _OFFSETS)


def by_timestamp_problem(field: str, value: str) -> Problem | None:
    """Return what is wrong with `startingOffsetsByTimestamp`, or None."""
    return _problem(field, value, 0, _TIMES)


def assign_problem(field: str, value: str) -> Problem | None:
    """Return what is wrong with `assign`, or None."""
    try:
        assigned(value)
    except NotPlaces as error:
        return Problem(field, value[:200], str(error), _ASSIGN)
    return None


def coverage_problem(field: str, value: str, *, topics: set[str], assign: str) -> Problem | None:
    """Return how offsets differ from the partitions read: Spark requires both to be the same.

    `topics` are the subscribed topics, whose partitions are not known here. None if either side
    cannot be parsed, which is reported elsewhere.
    """
    try:
        named: set[Partition] = {
            (topic, number) for topic, partitions in places(value).items() for number in partitions
        }
        wanted = assigned(assign) if assign else set()
    except NotPlaces:
        return None
    if not wanted:
        if not topics:  # a pattern: its topics are unknown here
            return None
        wanted = {(topic, None) for topic in topics}
        named = {(topic, None) for topic, _ in named}
    return _difference(field, value, named, wanted)


def partitions_problem(field: str, value: str, *, read: set[tuple[str, int]]) -> Problem | None:
    """Return how offsets and the partitions of the topics on the broker differ.

    None if no partitions are listed, or the value is rejected elsewhere.
    """
    try:
        named = {
            (topic, number) for topic, partitions in places(value).items() for number in partitions
        }
    except NotPlaces:
        return None
    return _difference(field, value, set(named), set(read))


def _difference(
    field: str, value: str, named: set[Partition], wanted: set[Partition]
) -> Problem | None:
    missing, strange = wanted - named, named - wanted
    if missing:
        message = f"does not list {_words(missing)}; Spark needs every partition that is read."
        return Problem(
            field,
            value[:200],
            message,
            "Add each partition: -2 is the earliest offset, -1 the latest.",
        )
    if strange:
        message = f"lists {_words(strange)}, which is not read."
        return Problem(field, value[:200], message, "Remove these partitions, or read them too.")
    return None


def places(text: str) -> Places:
    """Return topic → partition → number; raise `NotPlaces` for anything else."""
    by_topic: Places = {}
    for topic, partitions in _object(text).items():
        if not isinstance(partitions, dict) or not partitions:
            raise NotPlaces(f"has no partitions for {topic[:100]}.")
        by_topic[topic] = {}
        for partition, number in partitions.items():
            if (partition_number := whole(partition)) is None:
                raise NotPlaces(f'names the partition "{partition[:40]}", which is not a number.')
            if isinstance(number, bool) or not isinstance(number, int):
                raise NotPlaces(f"does not give a whole number for {topic[:100]} {partition}.")
            by_topic[topic][partition_number] = number
    return by_topic


def assigned(text: str) -> set[Partition]:
    """Return the (topic, partition) pairs of `assign`; raise `NotPlaces` if it is not valid."""
    pairs: set[Partition] = set()
    for topic, partitions in _object(text).items():
        if not isinstance(partitions, list) or not partitions:
            raise NotPlaces(f"does not list partitions for {topic[:100]}.")
        for partition in partitions:
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise NotPlaces(f"lists a partition of {topic[:100]} that is not a number.")
            pairs.add((topic, partition))
    return pairs


def _problem(field: str, value: str, least: int, way_out: str) -> Problem | None:
    try:
        by_topic = places(value)
    except NotPlaces as error:
        return Problem(field, value[:200], str(error), way_out)
    for topic, partitions in by_topic.items():
        for partition, number in partitions.items():
            if number < least:
                message = f"gives {number} for {topic[:100]} {partition}, which is too small."
                return Problem(field, value[:200], message, way_out)
    return None


def _object(text: str) -> dict[str, Any]:
    try:
        by_topic = json.loads(text)
    except ValueError:
        raise NotPlaces("is not JSON.") from None
    if not isinstance(by_topic, dict) or not by_topic:
        raise NotPlaces("does not name a topic.")
    return by_topic


def _words(partitions: set[Partition]) -> str:
    names = sorted(topic if number is None else f"{topic} {number}" for topic, number in partitions)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


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
    """Return the ranges read by Kafka sources between two batches, in partition order."""
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
