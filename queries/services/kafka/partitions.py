"""Query the broker for a source's partitions, if a definition depends on them.

A trigger may hold a core for each partition, and starting offsets must specify each partition. The
broker is queried before a definition is saved and outside its transaction. A broker that is not
responding therefore costs a few seconds and does not delay other users; earlier values are used
instead.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from queries.brokers.options import Unusable, client_options
from queries.brokers.reader import At, BrokerReader, Unreachable
from queries.domain.definitions.spec import HOLDING_TRIGGERS
from queries.domain.errors import Problem
from queries.domain.kafka.options import BY_PARTITION, uncovered
from queries.domain.secrets.bindings import application as holder_named
from queries.models.definitions import Query
from queries.secret_references import ReferenceMissing
from queries.selectors.kafka.sources import KafkaSource, kafka_sources
from queries.selectors.secrets import bound_to
from queries.selectors.triggers.cores import partition_counts
from queries.services.local_references import local_references
from queries.services.secrets.refusals import may_ask

logger = logging.getLogger(__name__)

LOOK_S = 3.0  # per broker set


@dataclass(frozen=True, slots=True)
class Looked:
    """What brokers returned for a definition's sources."""

    counts: dict[str, int] = field(default_factory=dict)  # partitions by source name
    problems: list[Problem] = field(default_factory=list)  # starting offsets that do not match


def begins(query: Query | None, checkpoint: str = "") -> bool:
    """Return whether sources would start at their configured offsets: there is no earlier batch.

    `checkpoint` is the one that a new query names; it may contain batches.
    """
    if query is None:
        return not checkpoint
    return not query.runs.exclude(first_commit_at=None).exists()


def needed(spec: Mapping[str, Any], *, beginning: bool) -> bool:
    """Return whether a definition, of any structure, depends on the brokers' partitions.

    True if its trigger holds cores per partition, or it starts from offsets per partition.
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
