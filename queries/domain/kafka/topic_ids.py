"""Tell whether a topic is still the one whose offsets a checkpoint holds, by Kafka's topic id.

A topic that is deleted and created again has the name and offsets of the old one, and another id.
Spark compares offsets only: where the new topic is at least as long as the old one was, it reads on
from the old offset and never reads what is before it, with `failOnDataLoss=true` too.

An id that is not known (no answer, no right to ask, a broker without ids) proves nothing: what was
remembered stays, and nothing is called the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from queries.domain.kafka.losses import Gap

Offsets = Mapping[str, Mapping[int, int]]

#: Stands for the id of a topic that is gone and whose id was never known; no topic has it.
GONE = "gone"
#: Kafka's "no id", as its clients print it: sixteen bytes of zero in base64.
NO_ID = "A" * 22
_FOR_URLS = str.maketrans("+/", "-_")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a query was in one partition of a topic when it was last seen there."""

    committed: int | None  # next offset to read; None: not known
    latest: int | None  # next offset that would have been written; None: not known


@dataclass(frozen=True, slots=True)
class Remembered:
    """Which topic a checkpoint's offsets of one name belong to, and what has replaced it."""

    id: str  # `GONE` where only that it is gone is known
    since: int = 0  # the first batch that read this topic
    now: str = ""  # id of the topic that has its name now; "": the same, as far as is known
    was: dict[int, Place] = field(default_factory=dict)  # by partition, before it was replaced
    passed: int | None = None  # first batch that read the new topic; None: none has

    @property
    def is_replaced(self) -> bool:
        """Tell whether another topic has taken its name."""
        return bool(self.now)

    @property
    def is_unread(self) -> bool:
        """Tell whether another topic has taken its name, and no batch has read that one."""
        return self.is_replaced and self.passed is None


#: By source (its name in the definition, "" for those that only its code knows) and topic.
Ids = dict[str, dict[str, Remembered]]


def ids_of(raw: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Ids:
    """Return what `as_json` wrote."""
    return {
        source: {topic: _remembered(held) for topic, held in topics.items()}
        for source, topics in raw.items()
    }


def as_json(ids: Ids) -> dict[str, Any]:
    """Return the form that rows store, equal to what they return for it; empty sources are out."""
    return {
        source: {topic: _stored(held) for topic, held in topics.items()}
        for source, topics in ids.items()
        if topics
    }


def by_topic(ids: Ids) -> dict[str, list[str]]:
    """Return the ids that a topic of each name may have; two sources may read two brokers."""
    found: dict[str, list[str]] = {}
    for topics in ids.values():
        for topic, held in topics.items():
            found.setdefault(topic, []).append(held.id)
    return found


def replaced_in(ids: Ids) -> set[str]:
    """Return the topics whose name another topic has taken."""
    return {topic for topics in ids.values() for topic, held in topics.items() if held.is_replaced}


def known_id(text: str | None) -> str | None:
    """Return an id as Java's client prints it; None where it is Kafka's "no id".

    Both clients print base64: Java's the form for URLs, librdkafka the other one.
    """
    return None if not text or text == NO_ID else text.translate(_FOR_URLS)


def changed(remembered: Mapping[str, Sequence[str]], seen: Mapping[str, str]) -> list[str]:
    """Return the topics whose id is known and none of those that are remembered."""
    return sorted(
        topic
        for topic, one in seen.items()
        if remembered.get(topic) and one not in remembered[topic]
    )


def after_look(
    held: Remembered | None,
    seen: str | None,
    *,
    begun: bool,
    was: Mapping[int, Place],
    ends: Mapping[int, int],
) -> Remembered | None:
    """Return what is remembered after a look at a topic; None: nothing is known.

    `seen` is the id that the broker tells now, None where it tells none. `begun` tells whether the
    checkpoint has any offset of the topic; until then whichever topic is there is the right one.
    `was` is where the query was at the look before, `ends` the next offsets of the topic now.
    """
    if seen is None:
        return held
    if not begun:
        return Remembered(seen)
    if held is None:
        shorter = any(
            place.committed is not None and number in ends and ends[number] < place.committed
            for number, place in was.items()
        )
        return Remembered(GONE, now=seen, was=dict(was)) if shorter else Remembered(seen)
    if held.id == seen:
        return Remembered(held.id, held.since)
    if held.now == seen:
        return held
    # Missing for a while, or replaced twice before anything was read: the first place counts.
    keep = bool(held.was) and held.passed is None
    return replace(held, now=seen, was=held.was if keep else dict(was), passed=None)


def while_missing(held: Remembered, was: Mapping[int, Place]) -> Remembered:
    """Return what is remembered while no topic has its name: the place in the last one."""
    return held if held.now or held.was else replace(held, was=dict(was))


@dataclass(frozen=True, slots=True)
class Entered:
    """From which offsets a query has read the topic that replaced another."""

    batch: int  # the first that read it
    at: dict[int, int]  # partition -> offset; of the partitions that both topics have


def entered(
    held: Remembered, topic: str, history: Sequence[tuple[int, Offsets]], ends: Mapping[int, int]
) -> Entered | None:
    """Return where a query has entered the new topic; None where it has not, or not surely.

    `history` are the offsets that its batches have read up to, oldest first, as its log holds
    them; `ends` the new topic's next offsets. Spark goes on from the old offset where the new topic
    reaches it, and from the new end (back, that is) where it does not.
    """
    found = {
        number: _entered_partition(number, place.committed, topic, history, ends.get(number))
        for number, place in held.was.items()
        if place.committed is not None and number in ends
    }
    batches = [one[0] for one in found.values() if one is not None]
    batches += _other_partitions(held, topic, history)
    if not batches:
        return None
    at: dict[int, int] = {}
    for number, one in found.items():
        committed = held.was[number].committed or 0
        if one is None and ends[number] < committed:
            return None  # Spark would have gone back here too: what moved was still the old topic
        at[number] = committed if one is None else one[1]
    return Entered(min(batches), at)


def lost_by(
    held: Remembered, topic: str, entered_at: Mapping[int, int], earliest: Mapping[int, int]
) -> tuple[list[Gap], list[Gap]]:
    """Return what was never read: of the topic that is gone, and of the one that replaced it."""
    old = [
        Gap(topic, number, place.committed, place.latest)
        for number, place in sorted(held.was.items())
        if place.committed is not None
        and place.latest is not None
        and place.latest > place.committed
    ]
    new = [
        Gap(topic, number, earliest[number], at)
        for number, at in sorted(entered_at.items())
        if number in earliest and at > earliest[number]
    ]
    return old, new


def as_of(ids: Ids, batch: int) -> Ids:
    """Return what a copy of the checkpoint as of a batch remembers.

    Where that batch read an earlier topic than the one remembered, only that it is gone is known.
    """
    return {
        source: {topic: _as_of(held, batch) for topic, held in topics.items()}
        for source, topics in ids.items()
    }


def names(topics: Iterable[str]) -> str:
    """Return topics as a sentence begins with them: "Topic flights was", "Topics a, b were"."""
    found = sorted(topics)
    listed = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    return f"Topic {listed} was" if len(found) == 1 else f"Topics {listed} were"


def _stored(held: Remembered) -> dict[str, Any]:
    return asdict(held) | {"was": {str(number): asdict(at) for number, at in held.was.items()}}


def _remembered(raw: Mapping[str, Any]) -> Remembered:
    was = {int(number): Place(**place) for number, place in raw.get("was", {}).items()}
    return Remembered(**{**raw, "was": was})


def _as_of(held: Remembered, batch: int) -> Remembered:
    if batch < held.since:
        return Remembered(GONE)
    if held.passed is not None and batch >= held.passed:
        return held
    return Remembered(held.id, held.since)


def _other_partitions(
    held: Remembered, topic: str, history: Sequence[tuple[int, Offsets]]
) -> list[int]:
    """Return the first batch that read other partitions than there were, in a list; [] for none.

    Only another topic has fewer, and partitions that a topic gains are in the look before.
    """
    read = [(batch, one[topic].keys()) for batch, one in history if topic in one]
    same = [place for place, (_, numbers) in enumerate(read) if numbers == held.was.keys()]
    return [batch for batch, _ in read[same[-1] + 1 :]][:1] if same else []


def _entered_partition(
    number: int,
    committed: int,
    topic: str,
    history: Sequence[tuple[int, Offsets]],
    end: int | None,
) -> tuple[int, int] | None:
    """Return the first batch that read a partition of the new topic, and from which offset."""
    read = [
        (batch, at) for batch, one in history if (at := one.get(topic, {}).get(number)) is not None
    ]
    first = next((place for place, (_, at) in enumerate(read) if at == committed), 0)
    rest = read[first:]
    for (_, before), (batch, at) in pairwise(rest):
        if at < before:
            return batch, at
    moved = next(((batch, at) for batch, at in rest if at > committed), None)
    if moved is None or end is None or end < rest[-1][1]:
        return None
    return moved[0], committed
