"""Read the partition counts of sources, and the cores that queries hold for them, from rows."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from queries.domain.definitions import parsing
from queries.domain.definitions.spec import HOLDING_TRIGGERS, ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.errors import Invalid
from queries.domain.triggers.cores import Ground, ground_of, permanent_cores
from queries.models.applications import Application
from queries.models.checkpoints import SourceLag
from queries.models.definitions import Query
from queries.selectors.kafka.sources import kafka_sources
from queries.selectors.newest import newest_revisions

Spec = SqlQuery | PythonQuery


def partition_counts(query_id: int, spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the partitions of a query's Kafka sources as of the last pass over the brokers.

    The keys are the sources' names; sources that were never looked up are omitted.
    """
    topics = partitions_by_topic([query_id]).get(query_id, {})
    counts_by_source = {}
    for source in kafka_sources(spec):
        counts = [count for topic, count in topics.items() if source.wanted.matches(topic)]
        if counts:
            counts_by_source[source.name] = sum(counts)
    return counts_by_source


def partitions_by_topic(query_ids: Iterable[int]) -> dict[int, dict[str, int]]:
    """Return {query: {topic: partitions}} as of the last pass over the brokers."""
    by_query: dict[int, dict[str, int]] = defaultdict(Counter)
    rows = SourceLag.objects.filter(query__in=list(query_ids), partition__gte=0)
    for query, topic in rows.filter(latest__isnull=False).values_list("query_id", "source"):
        by_query[query][topic] += 1
    return by_query


def cores_beside(application: Application, *, but: int | None) -> dict[str, int]:
    """Return the cores that an application's existing queries hold permanently, by query name.

    `but` is the query to exclude.
    """
    living = Query.objects.filter(application=application, archived_at=None).exclude(pk=but or 0)
    queries = dict(living.values_list("pk", "name"))
    spec, cores_by_query = None, {}
    for pk, revision in newest_revisions(list(queries)).items():
        if revision.spec.get("trigger", {}).get("kind") not in HOLDING_TRIGGERS:
            continue
        parsed = parsed_or_none(revision.spec)
        if parsed is not None:
            spec = spec or newest_application_spec(application)
            looked_up = partition_counts(pk, revision.spec)
            ground = ground_of(parsed, spec, host_cores=None, partitions=looked_up, beside={})
            cores_by_query[queries[pk]] = permanent_cores(parsed, ground)
    return {name: cores for name, cores in cores_by_query.items() if cores}


def ground_for(query: Query, spec: Spec, raw: Mapping[str, Any]) -> Ground:
    """Return the facts that an existing query's trigger depends on, as far as they are in rows."""
    return ground_of(
        spec,
        newest_application_spec(query.application),
        host_cores=os.cpu_count(),
        partitions=partition_counts(query.pk, raw),
        beside=cores_beside(query.application, but=query.pk),
    )


def newest_application_spec(application: Application) -> ApplicationSpec:
    """Return the spec of an application's newest revision."""
    return ApplicationSpec.model_validate(application.revisions.order_by("-number")[0].spec)


def parsed_or_none(raw: Mapping[str, Any]) -> Spec | None:
    """Return a stored definition; None if the current form can no longer read it."""
    try:
        return parsing.parse_query(raw)
    except Invalid:
        return None
