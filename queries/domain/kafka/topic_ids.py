"""Use Kafka's topic ID to detect whether a topic is still the one that a checkpoint has read.

A topic that is deleted and recreated has the same name and offsets, but a different ID. Spark
compares offsets only: if the new topic is at least as long as the old one was, Spark continues from
the old offset and never reads the records before it, even with `failOnDataLoss=true`.

An unknown ID (no response, no permission, a broker without IDs) does not prove anything: the
remembered ID is retained, and the topic is not assumed to be the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from queries.domain.kafka.losses import OffsetGap, Offsets

#: Used instead of the ID of a deleted topic whose ID was never known; no topic has this ID.
GONE = "gone"
#: Kafka's "no ID" as its clients print it: sixteen zero bytes in base64.
NO_ID = "A" * 22
_FOR_URLS = str.maketrans("+/", "-_")


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """A query's last known position in one partition of a topic."""

    committed: int | None  # next offset to read; None: unknown
    latest: int | None  # next offset to be written at that time; None: unknown


@dataclass(frozen=True, slots=True)
class Remembered:
    """The topic that a checkpoint's offsets belong to, and the topic that replaced it."""

    id: str  # `GONE` if all that is known is that it was deleted
    since: int = 0  # first batch that read this topic
    now: str = ""  # ID of the topic that now has its name; "": the same ID, as far as known
    was: dict[int, PartitionPosition] = field(
        default_factory=dict
    )  # by partition, before it was replaced
    passed: int | None = None  # first batch that read the new topic; None: no batch did

    @property
    def is_replaced(self) -> bool:
        """Return whether another topic has taken this topic's name."""
        return bool(self.now)

    @property
    def is_unread(self) -> bool:
        """Return whether another topic has taken this topic's name and no batch has read it."""
        return self.is_replaced and self.passed is None


#: By source (its name in the definition, "" for sources that only code knows) and topic.
Ids = dict[str, dict[str, Remembered]]


def ids_of(raw: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Ids:
    """Return the IDs from the form written by `as_json`."""
    return {
        source: {topic: _remembered(fields) for topic, fields in topics.items()}
        for source, topics in raw.items()
    }


def as_json(ids: Ids) -> dict[str, Any]:
    """Return the form stored in rows, without empty sources; rows return it unchanged."""
    return {
        source: {topic: _stored(topic_identity) for topic, topic_identity in topics.items()}
        for source, topics in ids.items()
        if topics
    }


def by_topic(ids: Ids) -> dict[str, list[str]]:
    """Return the possible IDs of each topic name; two sources may read from two brokers."""
    ids_by_topic: dict[str, list[str]] = {}
    for topics in ids.values():
        for topic, topic_identity in topics.items():
            ids_by_topic.setdefault(topic, []).append(topic_identity.id)
    return ids_by_topic


def replaced_in(ids: Ids) -> set[str]:
    """Return the topics whose name has been taken by another topic."""
    return {
        topic
        for topics in ids.values()
        for topic, topic_identity in topics.items()
        if topic_identity.is_replaced
    }


def java_id(text: str | None) -> str | None:
    """Return an ID as the Java client prints it; None for Kafka's "no ID".

    Both clients print base64: Java's is URL-safe, librdkafka's is standard.
    """
    return None if not text or text == NO_ID else text.translate(_FOR_URLS)


def changed(remembered_ids: Mapping[str, Sequence[str]], current: Mapping[str, str]) -> list[str]:
    """Return the topics whose ID is known and is not one of those remembered."""
    return sorted(
        topic
        for topic, topic_id in current.items()
        if remembered_ids.get(topic) and topic_id not in remembered_ids[topic]
    )


def after_look(
    topic_identity: Remembered | None,
    current_id: str | None,
    *,
    begun: bool,
    was: Mapping[int, PartitionPosition],
    ends: Mapping[int, int],
) -> Remembered | None:
    """Return the state to remember after a look at a topic; None if nothing is known.

    `current_id` is the ID that the broker reports now, None if it reports none. `begun` says
    whether the checkpoint has any offset of the topic; until then, any topic with this name is the
    right one. `was` is the query's position at the previous look, `ends` the topic's next offsets
    now.
    """
    if current_id is None:
        return topic_identity
    if not begun:
        return Remembered(current_id)
    if topic_identity is None:
        shorter = any(
            position.committed is not None and number in ends and ends[number] < position.committed
            for number, position in was.items()
        )
        return (
            Remembered(GONE, now=current_id, was=dict(was)) if shorter else Remembered(current_id)
        )
    if topic_identity.id == current_id:
        return Remembered(topic_identity.id, topic_identity.since)
    if topic_identity.now == current_id:
        return topic_identity
    # Missing for a while, or replaced twice before anything was read: the first position counts.
    keep = bool(topic_identity.was) and topic_identity.passed is None
    return replace(
        topic_identity, now=current_id, was=topic_identity.was if keep else dict(was), passed=None
    )


def while_missing(topic_identity: Remembered, was: Mapping[int, PartitionPosition]) -> Remembered:
    """Return what to remember while the topic is missing: the position in it at the last look."""
    return (
        topic_identity
        if topic_identity.now or topic_identity.was
        else replace(topic_identity, was=dict(was))
    )


def ended_at(topic_identity: Remembered, committed: Mapping[int, int]) -> Remembered:
    """Return what to remember once no run can continue reading the replaced topic.

    `committed` are the offsets of its newest commit. Whichever is later counts, that commit or the
    last look before the replacement: with async progress tracking, commits lag behind reading.
    """
    was = {
        number: replace(position, committed=max(position.committed or 0, committed[number]))
        for number, position in topic_identity.was.items()
        if number in committed
    }
    return replace(topic_identity, was={**topic_identity.was, **was})


@dataclass(frozen=True, slots=True)
class Entered:
    """The offsets from which a query has read the topic that replaced another."""

    batch: int  # the first batch that read it
    at: dict[int, int]  # partition -> offset, for the partitions that both topics have


def entered(
    topic_identity: Remembered,
    topic: str,
    history: Sequence[tuple[int, Offsets]],
    ends: Mapping[int, int],
) -> Entered | None:
    """Return where a query entered the new topic; None if it did not, or if that is uncertain.

    `history` contains the offsets up to which its batches have read, oldest first, from its log;
    `ends` contains the new topic's next offsets. Spark continues from the old offset if the new
    topic reaches it, and from the new end (that is, backwards) if it does not.
    """
    entries = {
        number: _entered_partition(number, position.committed, topic, history, ends.get(number))
        for number, position in topic_identity.was.items()
        if position.committed is not None and number in ends
    }
    batches = [entry[0] for entry in entries.values() if entry is not None]
    batches += _other_partitions(topic_identity, topic, history)
    if not batches:
        return None
    at: dict[int, int] = {}
    for number, entry in entries.items():
        committed = topic_identity.was[number].committed or 0
        if entry is None and ends[number] < committed:
            return None  # Spark would have gone back here too: the old topic was still moving
        at[number] = committed if entry is None else entry[1]
    return Entered(min(batches), at)


def lost_by(
    topic_identity: Remembered,
    topic: str,
    entered_at: Mapping[int, int],
    earliest: Mapping[int, int],
) -> tuple[list[OffsetGap], list[OffsetGap]]:
    """Return the gaps never read in the deleted topic, and those in the one that replaced it."""
    new = [
        OffsetGap(topic, number, earliest[number], at)
        for number, at in sorted(entered_at.items())
        if number in earliest and at > earliest[number]
    ]
    return rest_of(topic_identity, topic), new


def rest_of(topic_identity: Remembered, topic: str) -> list[OffsetGap]:
    """Return the gaps never read in a deleted topic."""
    return [
        OffsetGap(topic, number, position.committed, position.latest)
        for number, position in sorted(topic_identity.was.items())
        if position.committed is not None
        and position.latest is not None
        and position.latest > position.committed
    ]


def as_of(ids: Ids, batch: int) -> Ids:
    """Return the state to remember for a copy of the checkpoint as of a batch.

    If that batch read an earlier topic than the remembered one, it is only known that this topic is
    gone.
    """
    return {
        source: {topic: _as_of(topic_identity, batch) for topic, topic_identity in topics.items()}
        for source, topics in ids.items()
    }


def names(topics: Iterable[str]) -> str:
    """Return the topics as the beginning of a sentence: "Topic flights was", "Topics a, b were"."""
    ordered = sorted(topics)
    listed = ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")
    return f"Topic {listed} was" if len(ordered) == 1 else f"Topics {listed} were"


def _stored(topic_identity: Remembered) -> dict[str, Any]:
    return asdict(topic_identity) | {
        "was": {str(number): asdict(at) for number, at in topic_identity.was.items()}
    }


def _remembered(raw: Mapping[str, Any]) -> Remembered:
    was = {
        int(number): PartitionPosition(**position)
        for number, position in raw.get("was", {}).items()
    }
    return Remembered(**{**raw, "was": was})


def _as_of(topic_identity: Remembered, batch: int) -> Remembered:
    if batch < topic_identity.since:
        return Remembered(GONE)
    if topic_identity.passed is not None and batch >= topic_identity.passed:
        return topic_identity
    return Remembered(topic_identity.id, topic_identity.since)


def _other_partitions(
    topic_identity: Remembered, topic: str, history: Sequence[tuple[int, Offsets]]
) -> list[int]:
    """Return the first batch that read different partitions than before, as a list; [] for none.

    Only a different topic has fewer partitions, and partitions added to a topic appear in the
    previous look.
    """
    read = [(batch, offsets[topic].keys()) for batch, offsets in history if topic in offsets]
    same = [
        index for index, (_, numbers) in enumerate(read) if numbers == topic_identity.was.keys()
    ]
    return [batch for batch, _ in read[same[-1] + 1 :]][:1] if same else []


def _entered_partition(
    number: int,
    committed: int,
    topic: str,
    history: Sequence[tuple[int, Offsets]],
    end: int | None,
) -> tuple[int, int] | None:
    """Return the first batch that read a partition of the new topic, and the offset it began at."""
    read = [
        (batch, at)
        for batch, offsets in history
        if (at := offsets.get(topic, {}).get(number)) is not None
    ]
    first = next((index for index, (_, at) in enumerate(read) if at == committed), 0)
    rest = read[first:]
    for (_, before), (batch, at) in pairwise(rest):
        if at < before:
            return batch, at
    moved = next(((batch, at) for batch, at in rest if at > committed), None)
    if moved is None or end is None or end < rest[-1][1]:
        return None
    return moved[0], committed
