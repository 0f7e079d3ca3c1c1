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
from queries.domain.definitions.spec import HOLDING_TRIGGERS
from queries.domain.secrets.bindings import application as holder_named
from queries.models.definitions import Query
from queries.secret_references import ReferenceMissing
from queries.selectors.kafka.sources import KafkaSource, kafka_sources
from queries.selectors.secrets import bound_to
from queries.selectors.triggers.cores import known_partitions
from queries.services.local_references import local_references
from queries.services.secrets.refusals import may_ask

logger = logging.getLogger(__name__)

LOOK_S = 3.0  # for a broker set


def needed(spec: Mapping[str, Any]) -> bool:
    """Return whether the trigger of a definition, of whatever shape, holds cores by partition."""
    trigger = spec.get("trigger")
    return isinstance(trigger, dict) and trigger.get("kind") in HOLDING_TRIGGERS


def look(spec: Mapping[str, Any], application: str, query: Query | None = None) -> dict[str, int]:
    """Return the partitions of a definition's Kafka sources by the source's name.

    Where its options do not set their number. For a
    broker set that does not answer, what was seen of `query` before is used; what is unknown is
    left out.

    The definition must be valid in everything else: its options carry secrets to the broker that
    it names, and a refused definition sends nothing anywhere. Nor does a valid one of this
    application to a broker that no admin has allowed: what was seen before is used for it, too.
    """
    sources = [one for one in kafka_sources(spec) if one.wanted.topics or one.wanted.pattern]
    found = known_partitions(query.pk, spec) if query else {}
    bound = bound_to(holder_named(application))
    for brokers in {source.brokers for source in sources}:
        if not may_ask(brokers, bound):
            logger.info(
                "%s of application %s is not asked for partitions: it is not in "
                "HEADGATE_BROKER_HOSTS",
                dict(brokers).get("bootstrap.servers"),
                application,
            )
            continue
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
