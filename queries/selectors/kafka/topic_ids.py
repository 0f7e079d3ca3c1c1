"""Which topics a query's checkpoint has offsets of, and whether they are still those topics."""

from queries.domain.kafka.lag import is_new
from queries.domain.kafka.topic_ids import GONE, Ids, ids_of, replaced_in
from queries.models.checkpoints import SourceLag
from queries.models.definitions import Checkpoint, Query
from queries.selectors.kafka.lag import look_of


def remembered_ids(query_id: int) -> Ids:
    """Return what is remembered with a query's current checkpoint."""
    rows = Checkpoint.objects.filter(query=query_id, retired_at=None)
    return ids_of(rows.values_list("topic_ids", flat=True).first() or {})


def read_ids(query_id: int) -> dict[str, str]:
    """Return the id of the topic of each name that a query reads now, of those that are known."""
    found: dict[str, str] = {}
    for topics in remembered_ids(query_id).values():
        for topic, held in topics.items():
            reads = held.id if held.passed is None else held.now
            if reads != GONE:
                found[topic] = reads
    return found


def replaced_topics(query: Query) -> list[str]:
    """Return the topics that were deleted and created again since the query has read them."""
    by_id = replaced_in(remembered_ids(query.pk))
    rows = SourceLag.objects.filter(query=query, partition__gte=0)
    return sorted(by_id | {row.source for row in rows if is_new(look_of(row))})
