"""Keep the loss ledger: every record that a query never read, written once.

Losses come from three sources: the look at the brokers (offsets that were deleted before a query
with `failOnDataLoss=false` read them), the batches themselves (rows that are missing, rows that
came too late), and a user who accepts what a failed query has lost. No offset is in the ledger
twice, whichever source noticed it first.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from controlplane.nudge import changed
from listeners.models import Cursor, Progress
from queries.domain.kafka.losses import Gap, late_rows, shortfall, skipped, without
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import Operation
from queries.selectors.kafka.loss_ledger import known_ranges
from queries.selectors.kafka.sources import kafka_sources
from queries.selectors.kafka.topic_ids import read_ids

_CURSOR = "ledger"
_ROWS_AT_ONCE = 2_000  # batches of one call; the next call continues
#: How long a batch with missing rows waits for a look at its broker before it is judged without.
LOOK_WITHIN = timedelta(seconds=60)


def write_gaps(
    *,
    query: Query,
    gaps: Iterable[Gap],
    kind: LossKind,
    now: datetime,
    accepted_by: str = "",
    operation: Operation | None = None,
    batch: int | None = None,
    topic_id: str | None = None,
) -> list[Loss]:
    """Write offsets that are gone, without those that the ledger holds; return the new lines.

    Records are counted only where offsets are records: neither compacted nor transactional.
    `topic_id` names the topic where it is not the one that the query reads now: two topics of one
    name have the same offsets.
    """
    with transaction.atomic():
        Query.objects.select_for_update().get(pk=query.pk)
        ids = read_ids(query.pk)
        known = known_ranges(query.pk, topic_id=topic_id)
        plain = _plain(query.pk)
        rows = [
            Loss(
                query=query,
                kind=kind,
                source=piece.topic,
                partition=piece.partition,
                topic_id=ids.get(piece.topic, "") if topic_id is None else topic_id,
                from_offset=piece.first,
                to_offset=piece.until,
                offsets=piece.offsets,
                records=piece.offsets if plain.get(piece.topic) else None,
                batch=batch,
                noticed_at=now,
                accepted_by=accepted_by,
                accepted_at=now if accepted_by else None,
                operation=operation,
            )
            for gap in gaps
            for piece in without(gap, known.get((gap.topic, gap.partition), ()))
        ]
        made = Loss.objects.bulk_create(rows)
    if made:
        changed(f"query:{query.pk}", f"lag:{query.pk}")
    return made


def keep_ledger(*, now: datetime) -> int:
    """Judge the batches that came since the last call; return how many there were.

    The place up to which is read moves in the transaction that writes the losses, by
    compare-and-set: a batch is judged once, by whichever worker.
    """
    cursor, _ = Cursor.objects.get_or_create(name=_CURSOR)
    rows = list(Progress.objects.filter(pk__gt=cursor.position).order_by("pk")[:_ROWS_AT_ONCE])
    if not rows:
        return 0
    batches = _judged(rows, now)
    if not batches:
        return 0
    with transaction.atomic():
        moved = Cursor.objects.filter(name=_CURSOR, position=cursor.position)
        if not moved.update(position=batches[-1].row.pk):
            return 0
        _write_late([batch for batch in batches if batch.late], now)
        for batch in batches:
            if batch.short:
                _write_short(batch, now)
    return len(batches)


# --- batches ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Batch:
    """One executed batch, with what may have been lost in it."""

    row: Progress
    query: Query | None
    late: dict[str, int]
    short: list[dict[str, Any]]  # entries of its sources that read fewer rows than offsets
    may_skip: bool  # Spark skips gaps silently in this run


def _judged(rows: list[Progress], now: datetime) -> list[_Batch]:
    """Return the batches that can be judged now, up to one that waits for a look at its broker."""
    queries = Query.objects.in_bulk({row.query for row in rows})
    runs = Run.objects.select_related("revision").in_bulk({row.run for row in rows})
    skips = {pk: _may_skip(run) for pk, run in runs.items()}
    looked = _looked_at(queries)
    found = []
    for row in rows:
        sources = row.body.get("sources") or ()
        short = [source for source in sources if shortfall(source) is not None]
        ended = row.at + timedelta(milliseconds=row.batch_duration_ms)
        seen = looked.get(row.query)
        unseen = seen is not None and seen < ended and ended > now - LOOK_WITHIN
        if short and skips.get(row.run) and unseen:
            break
        found.append(
            _Batch(
                row=row,
                query=queries.get(row.query),
                late=late_rows(row.body),
                short=short,
                may_skip=skips.get(row.run, False),
            )
        )
    return found


def _may_skip(run: Run) -> bool:
    sources = kafka_sources(run.revision.spec)
    return run.accepts_loss or any(not source.fails_on_loss for source in sources)


def _looked_at(queries: Iterable[int]) -> dict[int, datetime]:
    found: dict[int, datetime] = {}
    rows = SourceLag.objects.filter(query__in=list(queries), partition__gte=0)
    for query, seen_at in rows.values_list("query_id", "seen_at"):
        found[query] = min(seen_at, found.get(query, seen_at))
    return found


def _write_short(batch: _Batch, now: datetime) -> None:
    """Write what a batch skipped; one that lost nothing shows that offsets have holes."""
    if batch.query is None:
        return
    lags = list(SourceLag.objects.filter(query=batch.query, partition__gte=0))
    plain = _plain(batch.query.pk)
    earliest: dict[str, dict[int, int]] = defaultdict(dict)
    for lag in lags:
        earliest[lag.source][lag.partition] = lag.earliest or 0
    for source in batch.short:
        told = shortfall(source)
        assert told is not None, "only such sources are kept"
        start, end, missing = told
        if not all(plain.get(topic, True) for topic in end):
            continue
        known = known_ranges(batch.query.pk)
        found = (
            skipped(start, end, missing, earliest=earliest, known=known) if batch.may_skip else []
        )
        for one in found:
            if one.gaps:
                write_gaps(
                    query=batch.query,
                    gaps=one.gaps,
                    kind=LossKind.SKIPPED,
                    now=now,
                    batch=batch.row.batch,
                )
            else:
                Loss.objects.create(
                    query=batch.query,
                    kind=LossKind.SKIPPED,
                    source=one.topic,
                    records=one.records,
                    batch=batch.row.batch,
                    noticed_at=now,
                )
                changed(f"query:{batch.query.pk}", f"lag:{batch.query.pk}")
        if not found and not known:
            # Nothing was deleted, yet rows are missing: transaction markers, or a LIMIT.
            SourceLag.objects.filter(query=batch.query, source__in=list(end)).update(holes=True)


def _write_late(batches: list[_Batch], now: datetime) -> None:
    """Add the rows that were dropped behind watermarks to their day."""
    counted: dict[tuple[int, str, Any], int] = defaultdict(int)
    for batch in batches:
        if batch.query is not None:
            for operator, rows in batch.late.items():
                counted[batch.query.pk, operator, batch.row.at.date()] += rows
    for (query, operator, day), rows in counted.items():
        line, made = Loss.objects.get_or_create(
            query_id=query,
            kind=LossKind.LATE,
            source=operator,
            day=day,
            defaults={"records": rows, "noticed_at": now},
        )
        if not made:
            Loss.objects.filter(pk=line.pk).update(records=F("records") + rows, noticed_at=now)
        changed(f"query:{query}", f"lag:{query}")


def _plain(query_id: int) -> Mapping[str, bool]:
    """Return for each topic of a query whether its offsets are records, as far as is known."""
    found: dict[str, bool] = {}
    rows = SourceLag.objects.filter(query=query_id, partition__gte=0)
    for topic, compacted, holes in rows.values_list("source", "compacted", "holes"):
        found[topic] = found.get(topic, True) and not compacted and not holes
    return found
