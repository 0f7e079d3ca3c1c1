"""Store topic ids with the checkpoint, and count the records lost with a replaced topic.

A pass over the brokers compares (`judge`, which writes nothing) and stores (`store`). If the query
fails on data loss, the id of a replaced topic is kept: the query is at risk until it is reset, and
its driver refuses to start it. If Spark is configured to skip gaps, the new topic's id is stored as
soon as a batch has read it. In both cases, the ledger records what was never read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from queries.brokers.options import TopicSelection
from queries.brokers.reader import At, BrokerLook
from queries.domain.kafka.losses import OffsetGap
from queries.domain.kafka.topic_ids import (
    Ids,
    PartitionPosition,
    Remembered,
    after_look,
    as_json,
    ended_at,
    entered,
    ids_of,
    lost_by,
    replaced_in,
    rest_of,
    while_missing,
)
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Checkpoint
from queries.selectors.kafka.sources import (
    KafkaSource,
    Reading,
    first_offsets_at,
    history_at,
)
from queries.services.kafka.loss_ledger import write_gaps

StoredLags = Mapping[At, SourceLag]


@dataclass(slots=True)
class TopicMemory:
    """A pass's findings about one query's topics."""

    before: dict[str, Any]  # as in the checkpoint's row
    ids: Ids
    unread: set[str] = field(default_factory=set)  # replaced, and not read since then
    lost: list[tuple[str, list[OffsetGap]]] = field(default_factory=list)  # (topic id, its offsets)
    left: list[tuple[str, str]] = field(default_factory=list)  # (topic, id of the deleted one)

    @property
    def replaced(self) -> set[str]:
        """Return the topics whose names now belong to another topic."""
        return replaced_in(self.ids)


def judge(
    reading: Reading,
    looks: Mapping[tuple[tuple[str, str], ...], BrokerLook],
    stored_lags: StoredLags,
) -> TopicMemory:
    """Compare each topic that a query reads with the one whose offsets its checkpoint contains."""
    row = reading.checkpoint
    raw = row.topic_ids if row is not None else {}
    memory = TopicMemory(raw, ids_of(raw))
    if row is None:
        return memory
    for source in reading.sources:
        look = looks.get(source.brokers)
        if look is None or source.error:
            continue
        source_topics = memory.ids.setdefault(source.name, {})
        existing = {topic for topic, _ in look.partitions}
        for topic in source_topics.keys() - existing:
            at = reading.committed.get(topic, {})
            source_topics[topic] = while_missing(
                source_topics[topic], _places(row, source.wanted, topic, at, stored_lags)
            )
        for topic in sorted(existing):
            if source.wanted.matches(topic):
                remembered = _topic(reading, row, source, topic, look, stored_lags, memory)
                if remembered is not None:
                    source_topics[topic] = remembered
    memory.unread = {
        topic
        for topics in memory.ids.values()
        for topic, stored in topics.items()
        if stored.is_unread
    }
    return memory


def store(reading: Reading, memory: TopicMemory, now: datetime) -> None:
    """Store a pass's results, unless another pass was faster; call this within a transaction."""
    after = as_json(memory.ids)
    if reading.checkpoint is None or (after == memory.before and not memory.lost):
        return
    row = Checkpoint.objects.select_for_update().filter(pk=reading.checkpoint.pk).first()
    if row is None or row.retired_at is not None or row.topic_ids != memory.before:
        return
    if after != memory.before:
        Checkpoint.objects.filter(pk=row.pk).update(topic_ids=after)
    for topic, former_id in memory.left:
        Loss.objects.filter(query=reading.query, source=topic, topic_id="").update(
            topic_id=former_id
        )
    for topic_id, gaps in memory.lost:
        write_gaps(
            query=reading.query,
            gaps=gaps,
            kind=LossKind.RECREATED,
            now=now,
            topic_id=topic_id,
        )


def _topic(
    reading: Reading,
    row: Checkpoint,
    source: KafkaSource,
    topic: str,
    look: BrokerLook,
    stored_lags: StoredLags,
    memory: TopicMemory,
) -> Remembered | None:
    """Return what to store about one topic after a pass, and record its losses."""
    ends = {
        number: partition_ends
        for (name, number), partition_ends in look.ends.items()
        if name == topic
    }
    latest = {number: partition_ends.latest for number, partition_ends in ends.items()}
    at = reading.committed.get(topic) or first_offsets_at(row.location).get(topic) or {}
    before = memory.ids.get(source.name, {}).get(topic)
    remembered = after_look(
        before,
        look.topic_ids.get(topic),
        begun=bool(at),
        was=_places(row, source.wanted, topic, at, stored_lags),
        ends=latest,
    )
    if remembered is None or not remembered.is_unread:
        return remembered
    entry_point = entered(remembered, topic, history_at(row.location), latest)
    if entry_point is None and not reading.may_have_read:  # its rest is certainly gone
        remembered = ended_at(remembered, at)
        if rest := rest_of(remembered, topic):
            memory.lost.append((remembered.id, rest))
    if entry_point is None:
        return remembered
    old, new = lost_by(
        remembered,
        topic,
        entry_point.at,
        {number: partition_ends.earliest for number, partition_ends in ends.items()},
    )
    memory.left.append((topic, remembered.id))
    memory.lost += [(remembered.id, old), (remembered.now, new)]
    if _fails_on_loss(reading, source):
        return replace(remembered, passed=entry_point.batch)
    return Remembered(remembered.now, entry_point.batch)


def _fails_on_loss(reading: Reading, source: KafkaSource) -> bool:
    accepts = reading.run is not None and reading.run.accepts_loss
    return source.fails_on_loss and not accepts


def _places(
    row: Checkpoint,
    wanted: TopicSelection,
    topic: str,
    at: Mapping[int, int],
    stored_lags: StoredLags,
) -> dict[int, PartitionPosition]:
    """Return the query's position in a topic's partitions at the previous pass.

    Values from before the checkpoint was created belong to another checkpoint.
    """
    positions = {number: PartitionPosition(committed, None) for number, committed in at.items()}
    for (name, number), lag in stored_lags.items():
        if name != topic or number < 0 or not wanted.of(topic, (number,)):
            continue
        if lag.committed is not None and lag.seen_at > row.created_at and not lag.replaced:
            positions[number] = PartitionPosition(lag.committed, lag.latest)
    return positions
