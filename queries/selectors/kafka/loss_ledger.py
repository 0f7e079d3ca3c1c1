"""The loss ledger of a query: what it never read, and who accepted that."""

from collections import defaultdict
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
    query_id: int, *, topic_id: str | None = None
) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Return the offsets [first, until) that the ledger holds, by topic and partition.

    Of the topics that the query reads now, or of the one with an id: offsets of a topic that was
    deleted say nothing about another of its name.
    """
    ids = read_ids(query_id)
    found: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for row in Loss.objects.filter(query=query_id).order_by("from_offset"):
        if row.partition is None or row.from_offset is None or row.to_offset is None:
            continue
        reads = ids.get(row.source, "")
        if topic_id is not None and row.topic_id != topic_id:
            continue
        if topic_id is None and reads and row.topic_id not in ("", reads):
            continue
        found[row.source, row.partition].append((row.from_offset, row.to_offset))
    return dict(found)
