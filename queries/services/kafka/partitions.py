"""Ask the broker how many partitions a source has, when a trigger holds a core for each.

Asked before a definition is saved and outside of its transaction: a broker that does not answer
costs a few seconds, and delays no other user. What was seen earlier is used instead.
"""

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from queries.brokers.options import Unusable, client_options
from queries.brokers.reader import BrokerReader, Unreachable
from queries.domain.triggers.cores import HOLDING
from queries.models.definitions import Query
from queries.secret_references import ReferenceMissing
from queries.selectors.kafka.sources import KafkaSource, kafka_sources
from queries.selectors.triggers.cores import known_partitions
from queries.services.local_references import local_references

logger = logging.getLogger(__name__)

LOOK_S = 3.0  # for a broker set


def look(spec: Mapping[str, Any], query: Query | None = None) -> dict[str, int]:
    """Return the partitions of a definition's Kafka sources by the source's name.

    Only where its trigger holds a core for each and its options do not set their number. For a
    broker set that does not answer, what was seen of `query` before is used; what is unknown is
    left out.
    """
    trigger = spec.get("trigger")
    if not isinstance(trigger, dict) or trigger.get("kind") not in HOLDING:
        return {}
    try:
        sources = [one for one in kafka_sources(spec) if one.wanted.topics or one.wanted.pattern]
    except (AttributeError, TypeError):
        return {}  # not the shape of a definition: its validation reports that
    found = known_partitions(query.pk, spec) if query else {}
    for brokers in {source.brokers for source in sources}:
        found |= _ask(brokers, [source for source in sources if source.brokers == brokers])
    return found


def _ask(brokers: tuple[tuple[str, str], ...], sources: list[KafkaSource]) -> dict[str, int]:
    references = local_references()
    wanted = [source.wanted for source in sources]
    try:
        options = client_options(references.resolve_all(dict(brokers)))
        with closing(BrokerReader(options)) as reader:
            found = reader.partitions(wanted, limit_s=LOOK_S)
    except (Unreachable, Unusable, ReferenceMissing) as error:
        logger.info("the partitions of a source are not known: %s", references.mask(str(error)))
        return {}
    counts = {
        source.name: sum(source.wanted.matches(topic) for topic, _ in found) for source in sources
    }
    return {name: count for name, count in counts.items() if count}
