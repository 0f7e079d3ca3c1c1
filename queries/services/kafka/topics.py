"""Query the broker for a source's partitions, and store topic ids to count replaced topics' losses.

A trigger may occupy a core for each partition, and starting offsets must specify each partition.
The broker is queried before a definition is saved and outside its transaction. A broker that is not
responding therefore costs a few seconds and does not delay other users; earlier values are used
instead.

A pass over the brokers compares (`judge`, which writes nothing) and stores (`store`). If the query
fails on data loss, the id of a replaced topic is kept: the query is at risk until it is reset, and
its driver refuses to start it. If Spark is configured to skip gaps, the new topic's id is stored as
soon as a batch has read it. In both cases, the ledger contains the records that were never read.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from queries.brokers.options import TopicSelection, Unusable, client_options
from queries.brokers.reader import At, BrokerLook, BrokerReader, Unreachable
from queries.domain.definitions.spec import HOLDING_TRIGGERS
from queries.domain.errors import Problem
from queries.domain.kafka.losses import OffsetGap
from queries.domain.kafka.options import BY_PARTITION, uncovered
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
from queries.domain.secrets import application as holder_named
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Checkpoint, Query
from queries.secret_references import ReferenceMissing
from queries.selectors.kafka.sources import (
    KafkaSource,
    Reading,
    first_offsets_at,
    history_at,
    kafka_sources,
)
from queries.selectors.secrets import bound_to
from queries.selectors.triggers.cores import partition_counts
from queries.services.kafka.loss_ledger import write_gaps
from queries.services.local_roots import local_references
from queries.services.secrets import may_ask

logger = logging.getLogger(__name__)

LOOK_S = 3.0  # per broker set


@dataclass(frozen=True, slots=True)
class Looked:
    """What brokers returned for a definition's sources."""

    counts: dict[str, int] = field(default_factory=dict)  # partitions by source name
    problems: list[Problem] = field(default_factory=list)  # starting offsets that do not match


def begins(query: Query | None, checkpoint: str = "") -> bool:
    """Return whether sources would start at their configured offsets: there is no earlier batch.

    `checkpoint` is that of a new query; it may contain batches.
    """
    if query is None:
        return not checkpoint
    return not query.runs.exclude(first_commit_at=None).exists()


def needed(spec: Mapping[str, Any], *, beginning: bool) -> bool:
    """Return whether a definition, of any structure, depends on the brokers' partitions.

    True if its trigger occupies cores per partition, or it starts from offsets per partition.
    """
    trigger = spec.get("trigger")
    if isinstance(trigger, dict) and trigger.get("kind") in HOLDING_TRIGGERS:
        return True
    return beginning and any(_listing(options) for _, options in _kafka_options(spec))


def look(
    spec: Mapping[str, Any], application: str, query: Query | None = None, *, beginning: bool
) -> Looked:
    """Return the partitions of a definition's Kafka sources, and problems with starting offsets.

    Only sources whose options do not set the number are looked up. For a broker set that is not
    responding, earlier values for `query` are used; unknown ones are omitted.

    The definition must be valid in every other respect: its options carry secrets to the broker
    that it names, and a rejected definition must not send anything anywhere. Nothing is sent either
    to a broker that no admin has allowed for this application; in this case, too, earlier values
    are used.
    """
    sources = [
        kafka_source
        for kafka_source in kafka_sources(spec)
        if kafka_source.wanted.topics or kafka_source.wanted.pattern
    ]
    looked = Looked(partition_counts(query.pk, spec) if query else {})
    bound = bound_to(holder_named(application))
    for brokers in {source.brokers for source in sources}:
        if not may_ask(brokers, bound):
            logger.info(
                "%s of application %s is not queried for partitions: it is not in "
                "HEADGATE_BROKER_HOSTS",
                dict(brokers).get("bootstrap.servers"),
                application,
            )
            continue
        broker_sources = [source for source in sources if source.brokers == brokers]
        partitions = _query_partitions(brokers, broker_sources)
        looked.counts.update({name: len(read) for name, read in partitions.items()})
        if beginning:
            whole = [
                kafka_source.name
                for kafka_source in broker_sources
                if _is_whole(kafka_source, partitions.get(kafka_source.name, set()))
            ]
            looked.problems.extend(_uncovered(spec, {name: partitions[name] for name in whole}))
    return looked


def _is_whole(source: KafkaSource, read: set[At]) -> bool:
    """Return whether the broker has every topic that the source names; others may come later."""
    return bool(read) and set(source.wanted.topics) <= {topic for topic, _ in read}


def _uncovered(spec: Mapping[str, Any], partitions: Mapping[str, set[At]]) -> Iterator[Problem]:
    for index, options in _kafka_options(spec):
        if (read := partitions.get(spec["sources"][index].get("name", ""))) is not None:
            yield from uncovered(f"sources.{index}.options", options, read)


def _kafka_options(spec: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    sources = spec.get("sources")
    rows = enumerate(sources if isinstance(sources, list) else ())
    return [
        (index, source["options"])
        for index, source in rows
        if isinstance(source, dict)
        and source.get("format") == "kafka"
        and isinstance(source.get("options"), dict)
    ]


def _listing(options: Mapping[str, Any]) -> bool:
    listing = {name.lower() for name in BY_PARTITION}
    return any(
        name.lower() in listing and str(value).lstrip().startswith("{")
        for name, value in options.items()
    )


def _query_partitions(
    brokers: tuple[tuple[str, str], ...], sources: list[KafkaSource]
) -> dict[str, set[At]]:
    """Query the partitions that each source reads; sources without any are omitted."""
    references = local_references()
    wanted = [source.wanted for source in sources]
    try:
        options = client_options(references.resolve_all(dict(brokers)))
        with closing(BrokerReader(options)) as reader:
            partitions = reader.partitions(wanted, limit_s=LOOK_S)
    except (Unreachable, Unusable, ReferenceMissing) as error:
        logger.info("could not get the partitions of a source: %s", references.mask(str(error)))
        return {}
    read = {
        source.name: {at for at in partitions if source.wanted.matches(at[0])} for source in sources
    }
    return {name: ats for name, ats in read.items() if ats}


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
        broker_topics = {topic for topic, _ in look.partitions}
        for topic in source_topics.keys() - broker_topics:
            at = reading.committed.get(topic, {})
            source_topics[topic] = while_missing(
                source_topics[topic], _places(row, source.wanted, topic, at, stored_lags)
            )
        for topic in sorted(broker_topics):
            if source.wanted.matches(topic):
                topic_identity = _topic(reading, row, source, topic, look, stored_lags, memory)
                if topic_identity is not None:
                    source_topics[topic] = topic_identity
    memory.unread = {
        topic
        for topics in memory.ids.values()
        for topic, topic_identity in topics.items()
        if topic_identity.is_unread
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
    topic_identity = after_look(
        before,
        look.topic_ids.get(topic),
        begun=bool(at),
        was=_places(row, source.wanted, topic, at, stored_lags),
        ends=latest,
    )
    if topic_identity is None or not topic_identity.is_unread:
        return topic_identity
    entry_point = entered(topic_identity, topic, history_at(row.location), latest)
    if entry_point is None and not reading.may_have_read:  # its rest is certainly gone
        topic_identity = ended_at(topic_identity, at)
        if rest := rest_of(topic_identity, topic):
            memory.lost.append((topic_identity.id, rest))
    if entry_point is None:
        return topic_identity
    old, new = lost_by(
        topic_identity,
        topic,
        entry_point.at,
        {number: partition_ends.earliest for number, partition_ends in ends.items()},
    )
    memory.left.append((topic, topic_identity.id))
    memory.lost += [(topic_identity.id, old), (topic_identity.now, new)]
    if _fails_on_loss(reading, source):
        return replace(topic_identity, passed=entry_point.batch)
    return Remembered(topic_identity.now, entry_point.batch)


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
