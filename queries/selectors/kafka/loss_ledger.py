"""The loss ledger of a query: what it never read, and who accepted that."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Count, QuerySet, Sum

from queries.domain.states import LossKind
from queries.models.checkpoints import Loss
from queries.models.definitions import Query
from queries.selectors.kafka.topic_ids import read_ids


@dataclass(frozen=True, slots=True)
class LossTotal:
    """All lines of one kind."""

    kind: LossKind
    lines: int
    offsets: int | None
    records: int | None  # of the lines where that is known


def losses(query: Query) -> QuerySet[Loss]:
    """Return a query's losses, newest first, each with the operation that accepted it."""
    rows = Loss.objects.filter(query=query).select_related("operation")
    return rows.order_by("-noticed_at", "-pk")


def loss_totals(query: Query) -> list[LossTotal]:
    """Return what was lost by kind; kinds of which nothing was lost are left out."""
    rows = Loss.objects.filter(query=query).order_by().values("kind")
    counted = rows.annotate(lines=Count("pk"), offsets=Sum("offsets"), records=Sum("records"))
    found = {row["kind"]: row for row in counted}
    return [
        LossTotal(kind, found[kind]["lines"], found[kind]["offsets"], found[kind]["records"])
        for kind in LossKind
        if kind in found
    ]


def known_ranges(
    query_id: int, *, within: Mapping[str, tuple[int, int]], topic_id: str | None = None
) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Return the offsets [first, until) that the ledger holds, by topic and partition.

    `within` limits it to what overlaps these offsets of these topics: of the topics that the query
    reads now, or of the one with an id. Offsets of a topic that was deleted say nothing about
    another of its name.
    """
    ids = read_ids(query_id) if topic_id is None else {}
    found: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for topic, (first, until) in within.items():
        rows = _ranges(query_id).filter(source=topic, from_offset__lt=until, to_offset__gt=first)
        if topic_id is not None:
            rows = rows.filter(topic_id=topic_id)
        elif ids.get(topic):
            rows = rows.filter(topic_id__in=("", ids[topic]))
        for row in rows.order_by("from_offset"):
            if row.partition is not None and row.from_offset is not None and row.to_offset:
                found[topic, row.partition].append((row.from_offset, row.to_offset))
    return dict(found)


def has_ranges(query_id: int) -> bool:
    """Tell whether the ledger holds any offsets of the topics that a query reads now."""
    ids = read_ids(query_id)
    held = _ranges(query_id).values_list("source", "topic_id").distinct()
    return any(topic_id in ("", ids.get(source) or topic_id) for source, topic_id in held)


def _ranges(query_id: int) -> QuerySet[Loss]:
    rows = Loss.objects.filter(query=query_id, partition__isnull=False)
    return rows.filter(from_offset__isnull=False, to_offset__isnull=False)
