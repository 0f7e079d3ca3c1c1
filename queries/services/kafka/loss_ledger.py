"""Keep the loss ledger: every record that a query never read, written once.

There are three sources of entries: the pass over the brokers (offsets deleted before a query with
`failOnDataLoss=false` read them), the batches themselves (missing rows, rows that arrived too
late), and users who accept the losses of a failed query. No offset is recorded twice, whichever
source notices it first.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from controlplane.nudge import changed
from listeners.loops.backlogs import LEDGER, loop_errors, quarantine, rows_left
from listeners.loops.slices import BulkRun, Slice, bulk_work, lies_in_the_row
from listeners.models import Cursor, Progress
from queries.domain.checkpoints.batches import is_uncounted
from queries.domain.kafka.losses import (
    OffsetGap,
    Offsets,
    late_rows,
    read_whole,
    shortfall,
    skipped,
    without,
)
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import Operation
from queries.selectors.kafka.lag import has_ranges, ledger_ranges, read_ids, with_ranges
from queries.selectors.kafka.sources import kafka_sources
from queries.services.kafka.loss_corrections import correct_by_batch

logger = logging.getLogger(__name__)
_loop = loop_errors("loss ledger", logger)

_ROWS_AT_ONCE = 1_000  # batches per read; bodies are some KB each
_LATE_LINES = 8  # per slice: each is read and written separately
LIMIT_S = 5.0  # per call, which leaves the thread to its other ticks
#: How long a batch with missing rows waits for a pass over its broker before it is evaluated.
LOOK_WITHIN = timedelta(seconds=60)


def write_gaps(
    *,
    query: Query,
    gaps: Iterable[OffsetGap],
    kind: LossKind,
    now: datetime,
    accepted_by: str = "",
    operation: Operation | None = None,
    batch: int | None = None,
    topic_id: str | None = None,
    corrected_too: bool = False,
) -> list[Loss]:
    """Write missing offsets that are not in the ledger yet; return the new entries.

    Records are counted only where offsets are records: neither compacted nor transactional.
    `topic_id` identifies the topic if the query now reads another one: two topics with the same
    name use the same offset numbers. Corrected offsets are written again only if a batch is the
    evidence (`corrected_too`), because a pass over the brokers only sees the same data as before.
    """
    with transaction.atomic():
        Query.objects.select_for_update().get(pk=query.pk)
        gaps = list(gaps)
        within = {
            topic: (min(gap.first for gap in own), max(gap.until for gap in own))
            for topic in {gap.topic for gap in gaps}
            for own in ([gap for gap in gaps if gap.topic == topic],)
        }
        ids = read_ids(query.pk)
        recorded_ranges = ledger_ranges(
            query.pk, within=within, topic_id=topic_id, corrected=not corrected_too
        )
        plain = _plain(_lags(query.pk))
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
            for piece in without(gap, recorded_ranges.get((gap.topic, gap.partition), ()))
        ]
        made = Loss.objects.bulk_create(rows)
    if made:
        changed(f"query:{query.pk}", f"lag:{query.pk}")
    return made


def keep_ledger(*, now: datetime, limit_s: float = LIMIT_S) -> int:
    """Evaluate the batches since the last call; return how many there were.

    Reads outside of transactions and writes in slices, for at most `limit_s` seconds; the next call
    continues. The transaction that writes the losses also advances the read position, so each batch
    is evaluated only once, whichever worker does it. A batch that cannot be evaluated is set aside.
    """
    judged = 0
    with bulk_work(LEDGER, limit_s=limit_s) as work:
        while work is not None and work.has_time:
            rows = _rows_after(Cursor.objects.get(name=LEDGER).position)
            batches = _judged(rows, now)
            written = _write(work, batches, now)
            judged += written
            if len(rows) < _ROWS_AT_ONCE or written < len(rows):
                break
        if work is not None:
            work.left(*rows_left(LEDGER))
    return judged


def _rows_after(position: int) -> list[Progress]:
    return list(Progress.objects.filter(pk__gt=position).order_by("pk")[:_ROWS_AT_ONCE])


def _write(work: BulkRun, batches: "list[_LedgerBatch]", now: datetime) -> int:
    """Write the losses of batches, as far as time allows; return the number of batches written."""
    done = 0
    while done < len(batches) and work.has_time:
        try:
            with work.slice() as work_slice:
                count = _write_some(batches[done:], now, work_slice)
        except Exception as error:
            if not lies_in_the_row(error):
                raise
            count = _write_separately(work, batches[done], now)
        done += count
    return done


def _write_some(batches: "Sequence[_LedgerBatch]", now: datetime, work_slice: Slice) -> int:
    """Write batches until the slice is complete; return how many were written."""
    selected_batches: list[_LedgerBatch] = []
    late: set[tuple[int, str, date]] = set()
    lags: _Lags = {}
    for batch in batches:
        selected_batches.append(batch)
        if batch.unsound is not None:
            quarantine(LEDGER, _name(batch.row), batch.unsound, log=logger)
        late.update(_late_lines(batch))
        if batch.short:
            _write_short(batch, lags, now)
        for span in batch.whole:
            if batch.query is not None:
                correct_by_batch(query=batch.query, batch=batch.row.batch, span=span, now=now)
        if len(late) >= _LATE_LINES or work_slice.over:
            break
    _write_late([batch for batch in selected_batches if batch.late], now)
    Cursor.advance(LEDGER, selected_batches[-1].row.pk)
    return len(selected_batches)


def _write_separately(work: BulkRun, batch: "_LedgerBatch", now: datetime) -> int:
    """Write one batch separately; set it aside if its own data cannot be stored."""
    with work.slice() as work_slice:
        try:
            with transaction.atomic():
                return _write_some([batch], now, work_slice)
        except Exception as error:
            if not lies_in_the_row(error):
                raise
            quarantine(LEDGER, _name(batch.row), error, log=logger)
            Cursor.advance(LEDGER, batch.row.pk)
            return 1


def _name(row: Progress) -> str:
    return f"batch {row.batch} of run {row.run} (progress row {row.pk})"


# --- batches ----------------------------------------------------------------------------


_Lags = dict[int, list[SourceLag]]  # query -> its partitions, as read by a slice


@dataclass(frozen=True, slots=True)
class _LedgerBatch:
    """One executed batch, and its possible losses."""

    row: Progress
    query: Query | None
    late: dict[str, int]
    short: list[dict[str, Any]]  # its source entries with fewer rows than offsets
    whole: list[tuple[Offsets, Offsets]]  # (start, end) of sources with a row for each offset
    may_skip: bool  # Spark skips gaps silently in this run
    unsound: Exception | None = None  # why it cannot be evaluated


def _judged(rows: list[Progress], now: datetime) -> list[_LedgerBatch]:
    """Return the batches to evaluate now, up to one that waits for a pass over its broker."""
    queries = Query.objects.in_bulk({row.query for row in rows})
    runs = Run.objects.select_related("revision").in_bulk({row.run for row in rows})
    skips: dict[int, bool] = {}
    for pk, run in runs.items():
        with _loop.isolate_errors(f"run {pk}"):
            skips[pk] = _may_skip(run)
    looked, doubted = _looked_at(queries), with_ranges(queries)
    batches = []
    for row in rows:
        query, may_skip = queries.get(row.query), skips.get(row.run, False)
        try:
            late, short = _lost_in(row.body)
            whole = _whole_in(row.body) if row.query in doubted else []
            if short and row.run in runs and row.run not in skips:
                raise ValueError(f"the definition of run {row.run} cannot be read")
        except Exception as error:  # one bad row must not stop the ledger for good
            batches.append(_LedgerBatch(row, query, {}, [], [], may_skip, unsound=error))
            continue
        ended = row.at + timedelta(milliseconds=row.batch_duration_ms)
        looked_at = looked.get(row.query)
        unseen = looked_at is not None and looked_at < ended and ended > now - LOOK_WITHIN
        if short and may_skip and unseen:
            break
        batches.append(_LedgerBatch(row, query, late, short, whole, may_skip))
    return batches


def _lost_in(body: Mapping[str, Any]) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return a batch's late rows, and its source entries with missing rows.

    A batch that was repeated without reading its rows says nothing about missing ones.
    """
    sources = () if is_uncounted(body) else body.get("sources") or ()
    return late_rows(body), [source for source in sources if shortfall(source) is not None]


def _whole_in(body: Mapping[str, Any]) -> list[tuple[Offsets, Offsets]]:
    return [span for source in body.get("sources") or () if (span := read_whole(source))]


def _may_skip(run: Run) -> bool:
    sources = kafka_sources(run.revision.spec)
    return run.accepts_loss or any(not source.fails_on_loss for source in sources)


def _looked_at(queries: Iterable[int]) -> dict[int, datetime]:
    oldest_looks: dict[int, datetime] = {}
    rows = SourceLag.objects.filter(query__in=list(queries), partition__gte=0)
    for query, looked_at in rows.values_list("query_id", "seen_at"):
        oldest_looks[query] = min(looked_at, oldest_looks.get(query, looked_at))
    return oldest_looks


def _write_short(batch: _LedgerBatch, lags: _Lags, now: datetime) -> None:
    """Write a batch's skipped offsets; if nothing was lost, record that offsets have holes."""
    if batch.query is None:
        return
    if batch.query.pk not in lags:
        lags[batch.query.pk] = _lags(batch.query.pk)
    plain = _plain(lags[batch.query.pk])
    earliest: dict[str, dict[int, int]] = defaultdict(dict)
    for lag in lags[batch.query.pk]:
        earliest[lag.source][lag.partition] = lag.earliest or 0
    for source in batch.short:
        shortage = shortfall(source)
        assert shortage is not None, "only such sources are kept"
        start, end, missing = shortage
        if not all(plain.get(topic, True) for topic in end):
            continue
        recorded_ranges = ledger_ranges(batch.query.pk, within=_spans(start, end))
        skips = (
            skipped(start, end, missing, earliest=earliest, ledger=recorded_ranges)
            if batch.may_skip
            else []
        )
        for skip in skips:
            if skip.gaps:
                write_gaps(
                    query=batch.query,
                    gaps=skip.gaps,
                    kind=LossKind.SKIPPED,
                    now=now,
                    batch=batch.row.batch,
                    corrected_too=True,
                )
            else:
                Loss.objects.create(
                    query=batch.query,
                    kind=LossKind.SKIPPED,
                    source=skip.topic,
                    records=skip.records,
                    batch=batch.row.batch,
                    noticed_at=now,
                )
                changed(f"query:{batch.query.pk}", f"lag:{batch.query.pk}")
        if not skips and not recorded_ranges and not has_ranges(batch.query.pk):
            # Nothing was deleted, yet rows are missing: transaction markers, or a LIMIT.
            SourceLag.objects.filter(query=batch.query, source__in=list(end)).update(holes=True)
            lags.pop(batch.query.pk, None)  # read them again for the next batch
            plain |= dict.fromkeys(end, False)


def _late_lines(batch: _LedgerBatch) -> set[tuple[int, str, date]]:
    """Return the ledger entries that count a batch's late rows."""
    if batch.query is None:
        return set()
    return {(batch.query.pk, operator, batch.row.at.date()) for operator in batch.late}


def _write_late(batches: list[_LedgerBatch], now: datetime) -> None:
    """Add the rows dropped because of watermarks to their day's entry."""
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


def _lags(query_id: int) -> list[SourceLag]:
    return list(SourceLag.objects.filter(query=query_id, partition__gte=0))


def _plain(lags: Iterable[SourceLag]) -> dict[str, bool]:
    """Return, for each topic of a query, whether its offsets are records, as far as is known."""
    plain: dict[str, bool] = {}
    for lag in lags:
        plain[lag.source] = plain.get(lag.source, True) and lag.counts_records
    return plain


def _spans(start: Offsets, end: Offsets) -> dict[str, tuple[int, int]]:
    """Return, for each topic, the offset range [first, until) of a batch's partitions."""
    return {
        topic: (
            min(start.get(topic, {}).get(partition, 0) for partition in partitions),
            max(partitions.values()),
        )
        for topic, partitions in end.items()
        if partitions
    }
