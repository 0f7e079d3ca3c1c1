"""Read a query's loss ledger: the data that it never read, and who accepted the loss."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, QuerySet, Sum

from queries.domain.kafka.losses import OffsetGap, without
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss
from queries.models.definitions import Query
from queries.selectors.first_or_missing import first_or_missing as first_of
from queries.selectors.kafka.topic_ids import read_ids


@dataclass(frozen=True, slots=True)
class LossTotal:
    """The total of all entries of one kind."""

    kind: LossKind
    lines: int
    offsets: int | None
    records: int | None  # of the lines with known numbers
    corrected: int = 0  # records (else offsets) withdrawn by corrections: not included above


def losses(query: Query) -> QuerySet[Loss]:
    """Return a query's losses, newest first, each with the operation that accepted it."""
    rows = Loss.objects.filter(query=query).select_related("operation", "corrects")
    return rows.order_by("-noticed_at", "-pk")


def loss(query: Query, loss_id: int) -> Loss:
    """Return one entry of a query's ledger; raise `Missing` if there is none with this number."""
    return first_of(
        losses(query).filter(pk=loss_id),
        f"The loss ledger of {query.name} has no entry {loss_id}.",
        way_out=f"GET /api/v1/queries/{query.name}/losses/ lists them.",
    )


def recorded_after(at: datetime, query: Query) -> list[OffsetGap]:
    """Return the first offsets that the ledger records as lost after a failure.

    Corrected entries are left out: their offsets were not lost.
    """
    rows = losses(query).filter(noticed_at__gte=at, corrects=None, corrections=None)
    with_offsets = rows.exclude(partition=None).exclude(from_offset=None).exclude(to_offset=None)
    first = with_offsets.order_by("noticed_at").values("noticed_at")[:1]
    return sorted(
        OffsetGap(row.source, row.partition or 0, row.from_offset or 0, row.to_offset or 0)
        for row in with_offsets.filter(noticed_at=first)
    )


def loss_totals(query: Query) -> list[LossTotal]:
    """Return the losses by kind; kinds without losses are omitted."""
    return summed(Loss.objects.filter(query=query)).get(query.pk, [])


def summed(rows: QuerySet[Loss]) -> dict[int, list[LossTotal]]:
    """Return queries' losses by kind, minus the corrections among the rows.

    Kinds with nothing left are omitted.
    """
    rows_of = rows.order_by().values("query", "kind", "corrects__kind")
    counted = rows_of.annotate(lines=Count("pk"), offsets=Sum("offsets"), records=Sum("records"))
    sums = {(row["query"], row["corrects__kind"] or "", row["kind"]): row for row in counted}
    totals: dict[int, list[LossTotal]] = defaultdict(list)
    for query in {key[0] for key in sums}:
        for kind in LossKind:
            lost = sums.get((query, "", kind))
            back = sums.get((query, kind, LossKind.CORRECTED))
            if lost is None:
                continue
            total = LossTotal(
                kind,
                lost["lines"],
                _without(lost, back, "offsets"),
                _without(lost, back, "records"),
                (back["records"] or back["offsets"] or 0) if back else 0,
            )
            if total.records or total.offsets or back is None:
                totals[query].append(total)
    return dict(totals)


def _without(lost: Mapping[str, Any], back: Mapping[str, Any] | None, name: str) -> int | None:
    """Return a sum minus its corrections; None if it is unknown."""
    if lost[name] is None:
        return None
    return max(0, int(lost[name]) - int(back[name] or 0 if back else 0))


def ledger_ranges(
    query_id: int,
    *,
    within: Mapping[str, tuple[int, int]],
    topic_id: str | None = None,
    corrected: bool = False,
) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Return the offsets [first, until) in the ledger, by topic and partition.

    `within` limits this to ranges that overlap these offsets. Only the topics that the query
    currently reads are included, or the one with `topic_id`: a deleted topic's offsets do not apply
    to another topic with the same name. Corrected ranges are omitted unless `corrected` is true.
    """
    ids = read_ids(query_id) if topic_id is None else {}
    offset_ranges: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for topic, (first, until) in within.items():
        rows = _ranges(query_id).filter(source=topic, from_offset__lt=until, to_offset__gt=first)
        if topic_id is not None:
            rows = rows.filter(topic_id=topic_id)
        elif ids.get(topic):
            rows = rows.filter(topic_id__in=("", ids[topic]))
        for row in rows.order_by("from_offset"):
            whole = gap_of(row)
            for gap in [whole] if corrected and whole else left(row):
                offset_ranges[topic, gap.partition].append((gap.first, gap.until))
    return dict(offset_ranges)


def gap_of(row: Loss) -> OffsetGap | None:
    """Return the offsets of an entry; None if it has none."""
    if row.partition is None or row.from_offset is None or not row.to_offset:
        return None
    return OffsetGap(row.source, row.partition, row.from_offset, row.to_offset)


def left(row: Loss) -> list[OffsetGap]:
    """Return the offsets of an entry that have not been corrected; [] if there are none."""
    whole = gap_of(row)
    if whole is None:
        return []
    back = [gap_of(correction) for correction in row.corrections.all()]
    return without(whole, [(gap.first, gap.until) for gap in back if gap is not None])


def with_ranges(query_ids: Iterable[int]) -> set[int]:
    """Return the queries whose ledger contains offsets of topics with known ids."""
    rows = Loss.objects.filter(query__in=list(query_ids), corrects=None, partition__isnull=False)
    return set(rows.exclude(topic_id="").order_by().values_list("query", flat=True).distinct())


def has_ranges(query_id: int) -> bool:
    """Return whether the ledger has any offsets of the topics that a query reads now."""
    ids = read_ids(query_id)
    sources = _ranges(query_id).values_list("source", "topic_id").distinct()
    return any(topic_id in ("", ids.get(source) or topic_id) for source, topic_id in sources)


def _ranges(query_id: int) -> QuerySet[Loss]:
    rows = Loss.objects.filter(query=query_id, corrects=None, partition__isnull=False)
    rows = rows.filter(from_offset__isnull=False, to_offset__isnull=False)
    return rows.prefetch_related("corrections")
