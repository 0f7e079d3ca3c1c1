"""Read the ids of the topics in a query's checkpoint, and whether topics were replaced."""

from queries.domain.kafka.lag import is_new
from queries.domain.kafka.topic_ids import GONE, Ids, ids_of, replaced_in
from queries.models.checkpoints import SourceLag
from queries.models.definitions import Checkpoint, Query
from queries.selectors.kafka.lag import look_of


def remembered_ids(query_id: int) -> Ids:
    """Return the topic ids stored with a query's current checkpoint."""
    rows = Checkpoint.objects.filter(query=query_id, retired_at=None)
    return ids_of(rows.values_list("topic_ids", flat=True).first() or {})


def read_ids(query_id: int) -> dict[str, str]:
    """Return the known ids of the topics that a query reads now, by name."""
    ids_by_name: dict[str, str] = {}
    for topics in remembered_ids(query_id).values():
        for topic, remembered in topics.items():
            reads = remembered.id if remembered.passed is None else remembered.now
            if reads != GONE:
                ids_by_name[topic] = reads
    return ids_by_name


def replaced_topics(query: Query) -> list[str]:
    """Return the topics deleted and recreated since the query read them."""
    by_id = replaced_in(remembered_ids(query.pk))
    rows = SourceLag.objects.filter(query=query, partition__gte=0)
    return sorted(by_id | {row.source for row in rows if is_new(look_of(row))})
