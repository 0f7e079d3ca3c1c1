"""Store the findings of a pass over the brokers for one query: partitions, risk, reachability.

`lag.py` queries the brokers, and only this module writes the results (docs/decisions).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from controlplane.nudge import changed, reconcile_soon
from listeners.models import upsert
from queries.brokers.options import TopicSelection
from queries.brokers.reader import At, BrokerLook, PartitionEnds, RecordSeen
from queries.domain.kafka.lag import PartitionLook, after, is_new, unread
from queries.domain.kafka.losses import OffsetGap, gaps_of
from queries.domain.kafka.retention import Retention, risk
from queries.domain.kafka.topic_ids import replaced_in
from queries.domain.states import LossKind, RunOutcome
from queries.domain.tables.lag import table_risk
from queries.models.checkpoints import NO_DATA, TABLE, SourceLag
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.selectors.kafka.lag import clock_of, look_of, measured, remembered_ids, retention_of
from queries.selectors.kafka.sources import Reading, ReportedOffsets
from queries.selectors.tables import table_lag
from queries.services.kafka import topics
from queries.services.kafka.loss_corrections import add_at_risk_note
from queries.services.kafka.loss_ledger import write_gaps

Brokers = tuple[tuple[str, str], ...]
#: A deadline is an estimate: one that has moved by less than this is not written again.
_SAME_TIME = timedelta(minutes=1)

StoredLags = Mapping[At, SourceLag]


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """A broker set's response, or why there is none."""

    look: BrokerLook | None = None
    silent: str = ""  # it is not responding
    unusable: str = ""  # it could not be queried from this host


def has_record_time(row: SourceLag, first: int) -> bool:
    """Return whether a row contains the time of the record at this offset."""
    if row.committed is None or row.record_at is None:
        return False
    return max(row.committed, row.earliest or 0) == first


def committed_of(reading: Reading, at: At) -> int | None:
    """Return the next offset to read; Spark reads a new partition from its first offset."""
    topic, partition = at
    if not any(source.wanted.matches(topic) for source in reading.sources if not source.error):
        return None
    partitions = reading.committed.get(topic)
    if partitions is None:
        return None
    return partitions.get(partition, 0)


def write(
    reading: Reading,
    answers: Mapping[Brokers, BrokerAnswer],
    stored_lags: StoredLags,
    now: datetime,
) -> None:
    """Write one query's partitions, and the resulting risk and reachability."""
    fresh: dict[At, SourceLag] = {}
    partitions: set[At] = set()
    looks = {brokers: answer.look for brokers, answer in answers.items() if answer.look}
    memory = topics.judge(reading, looks, stored_lags)
    errors: list[str] = [source.error for source in reading.sources if source.error]
    for brokers, answer in answers.items():
        if answer.look is not None:
            mine = [s.wanted for s in reading.sources if s.brokers == brokers and not s.error]
            fresh |= _rows(reading, answer.look, mine, stored_lags, memory.unread, now)
            errors += [
                f"Topic {name} does not exist."
                for selection in mine
                for name in selection.topics
                if not any(topic == name for topic, _ in answer.look.partitions)
            ]
            partitions |= set(answer.look.partitions)
        else:
            errors.append(answer.silent or answer.unusable)
    whole = all(answer.look is not None for answer in answers.values())
    with transaction.atomic():
        vanished_partitions = {
            at
            for at in stored_lags.keys() - fresh.keys()
            if at[1] < 0 or (whole and at not in partitions)
        }
        _store(
            reading,
            fresh,
            stored_lags,
            vanished_partitions,
            error=" ".join(dict.fromkeys(errors)),
            now=now,
        )
        rows = list(SourceLag.objects.filter(query=reading.query))
        topics.store(reading, memory, now)
        news = _judge(reading, answers, rows, memory.replaced, now)
        _note_gaps(reading, stored_lags, rows, now)
    before = {at: (row.committed, row.latest, row.error) for at, row in stored_lags.items()}
    after_ = {
        (row.source, row.partition): (row.committed, row.latest, row.error)
        for row in rows
        if row.partition != TABLE
    }
    changed(f"lag:{reading.query.pk}")
    if news or before != after_:
        changed(f"query:{reading.query.pk}")


def write_reported(reported_offsets: ReportedOffsets, now: datetime) -> None:
    """Write committed and latest offsets, with rates, that only a query's progress reports."""
    rows_of = SourceLag.objects.filter(query=reported_offsets.query).exclude(partition=TABLE)
    stored_lags = {(row.source, row.partition): row for row in rows_of}
    rows = {}
    for topic, partitions in reported_offsets.latest.items():
        for partition, latest in partitions.items():
            before = stored_lags.get((topic, partition))
            look = PartitionLook(
                topic=topic,
                partition=partition,
                at=now,
                committed=reported_offsets.committed.get(topic, {}).get(partition),
                latest=latest,
            )
            look = after(look, look_of(before) if before is not None else None, running=True)
            rows[topic, partition] = SourceLag(
                query=reported_offsets.query,
                source=topic,
                partition=partition,
                seen_at=now,
                **measured(look),
            )
    with transaction.atomic():
        vanished_pks = [row.pk for at, row in stored_lags.items() if at not in rows]
        SourceLag.objects.filter(pk__in=vanished_pks).delete()
        upsert(SourceLag, rows.values(), "query", "source", "partition")
        replaced = replaced_in(remembered_ids(reported_offsets.query.pk))
        own = list(SourceLag.objects.filter(query=reported_offsets.query))
        fresh = risk_columns(
            reported_offsets.query, own, replaced, running=True, may_have_read=True, now=now
        )
        news = store_risk(reported_offsets.query, fresh)
    changed(
        f"lag:{reported_offsets.query.pk}",
        *([f"query:{reported_offsets.query.pk}"] if news else []),
    )


def _rows(
    reading: Reading,
    look: BrokerLook,
    mine: Sequence[TopicSelection],
    stored_lags: StoredLags,
    unread_topics: Collection[str],
    now: datetime,
) -> dict[At, SourceLag]:
    """Return the rows of the partitions that a query reads from one broker set."""
    rows = {}
    for at, ends in look.ends.items():
        topic, partition = at
        if not any(
            selection.matches(topic) and selection.of(topic, (partition,)) for selection in mine
        ):
            continue
        row = stored_lags.get(at)
        new = topic in unread_topics
        partition_look = _partition_look(
            reading, at, ends, look.records.get(at), row, now, replaced=new
        )
        record = look.records.get(at)
        retention = look.retention.get(topic) or (
            retention_of(row) if row is not None else Retention(deletes=False, compacts=None)
        )
        rows[at] = SourceLag(
            query=reading.query,
            source=topic,
            partition=partition,
            **measured(partition_look),
            record_bytes=_mean_bytes(row, record),
            retention_ms=retention.ms if retention.deletes else None,
            retention_bytes=retention.bytes if retention.deletes else None,
            compacted=retention.compacts,
            holes=bool(row and row.holes) or _shows_a_hole(record, partition_look),
            seen_at=now,
            error="",
        )
        if deleted := clock_of(rows[at], now=now):
            rows[at].deleted_at = deleted.at
    return rows


def _partition_look(
    reading: Reading,
    at: At,
    ends: PartitionEnds,
    record: RecordSeen | None,
    row: SourceLag | None,
    now: datetime,
    *,
    replaced: bool,
) -> PartitionLook:
    """Return one partition's current state, with its rates and the time of its first unread record.

    If the topic has replaced another, that time is unknown: the old topic's time does not apply to
    it.
    """
    look = PartitionLook(
        topic=at[0],
        partition=at[1],
        at=now,
        committed=committed_of(reading, at),
        earliest=ends.earliest,
        latest=ends.latest,
        stable=ends.stable,
        replaced=replaced,
    )
    if not is_new(look) and unread(look) and look.committed is not None:
        first = max(look.committed, ends.earliest)
        if record is not None and record.offset >= first:
            look = replace(look, record_at=record.at)
        elif row is not None and has_record_time(row, first):
            look = replace(look, record_at=row.record_at)
    return after(look, look_of(row) if row is not None else None, running=reading.running)


def _mean_bytes(row: SourceLag | None, record: RecordSeen | None) -> float | None:
    """Return the mean size of a record in bytes, a moving average over the sampled records."""
    before = row.record_bytes if row is not None else None
    if record is None:
        return before
    return float(record.bytes) if before is None else before + 0.2 * (record.bytes - before)


def _shows_a_hole(record: RecordSeen | None, partition_look: PartitionLook) -> bool:
    """Return whether the first record is after the first offset: offsets are not records."""
    if record is None or partition_look.committed is None or partition_look.earliest is None:
        return False
    return record.offset > max(partition_look.committed, partition_look.earliest)


def _store(
    reading: Reading,
    fresh: StoredLags,
    stored_lags: StoredLags,
    vanished_partitions: set[At],
    *,
    error: str,
    now: datetime,
) -> None:
    """Write a pass's rows; keep rows that were not seen, and the reason in a row of this pass."""
    rows = SourceLag.objects.filter(query=reading.query)
    rows.filter(pk__in=[stored_lags[at].pk for at in vanished_partitions]).delete()
    upsert(SourceLag, fresh.values(), "query", "source", "partition")
    if not error and stored_lags.keys() - fresh.keys() - vanished_partitions:
        error = "A partition currently has no leader."
    if error:
        names = ", ".join(source.name for source in reading.sources)[:255]
        SourceLag.objects.create(
            query=reading.query, source=names, partition=NO_DATA, error=error, seen_at=now
        )


def _note_gaps(
    reading: Reading, stored_lags: StoredLags, rows: Sequence[SourceLag], now: datetime
) -> None:
    """Record data missing from sources whose gaps Spark skips, once the loss is certain.

    An open run may have fetched records that the topic has since deleted: its batches' rows show
    what they skipped (`loss_ledger`). If offsets are not records, the rows do not show this; in
    that case, the offsets that a committed batch has passed count instead.
    """
    silent = [source for source in reading.sources if not source.fails_on_loss]

    def skipped(gaps: Iterable[OffsetGap]) -> list[OffsetGap]:
        return [gap for gap in gaps if any(source.wanted.matches(gap.topic) for source in silent)]

    before = gaps_of(look_of(row) for row in stored_lags.values() if row.partition >= 0)
    after = {(row.source, row.partition): row for row in rows}
    passed = [gap for old in before for gap in _passed(old, after.get((old.topic, old.partition)))]
    if reading.may_have_read:
        if passed and not skipped(passed) and not (reading.run and reading.run.accepts_loss):
            add_at_risk_note(
                reading.query, passed, now=now
            )  # it fails on a loss, but has not failed
        lost = [gap for gap in passed if not after[gap.topic, gap.partition].counts_records]
    else:
        lost = gaps_of(look_of(row) for row in rows if row.partition >= 0)
        if lost and Run.objects.filter(query=reading.query, outcome=RunOutcome.OPEN).exists():
            return  # it has started since, and may have fetched them before this pass
    if lost := skipped(lost):
        write_gaps(query=reading.query, gaps=lost, kind=LossKind.SKIPPED, now=now)


def _passed(gap: OffsetGap, row: SourceLag | None) -> list[OffsetGap]:
    """Return the part of a gap that committed batches have since passed; [] if none."""
    if row is None or row.replaced or row.committed is None or row.committed <= gap.first:
        return []
    return [replace(gap, until=min(gap.until, row.committed))]


def _judge(
    reading: Reading,
    answers: Mapping[Brokers, BrokerAnswer],
    rows: Sequence[SourceLag],
    replaced: Collection[str],
    now: datetime,
) -> bool:
    """Write risk and reachability if they have changed; return whether they have."""
    query = reading.query
    silent = any(answer.silent for answer in answers.values())
    all_answered = all(answer.look is not None for answer in answers.values())
    since = (query.source_unreachable_since or now) if silent else None
    may = reading.may_have_read
    wanted = risk_columns(
        query, rows, replaced, running=reading.running, may_have_read=may, now=now
    ) | {
        "source_reachable": False if silent else (True if all_answered else None),
        "source_unreachable_since": since,
    }
    return store_risk(query, wanted)


def risk_columns(
    query: Query,
    rows: Sequence[SourceLag],
    replaced: Collection[str],
    *,
    running: bool,
    may_have_read: bool,
    now: datetime,
) -> dict[str, Any]:
    """Return the risk columns: what a query will lose from its topics and tables, and when."""
    within = timedelta(hours=settings.RISK_WITHIN_H)
    of_topics = risk(
        [(look_of(row), clock_of(row, now=now)) for row in rows if row.partition >= 0],
        running=running,
        may_have_read=may_have_read,
        within=within,
        now=now,
        replaced=replaced,
    )
    tables = [(row.source, table_lag(row)) for row in rows if row.partition == TABLE]
    of_tables = table_risk(tables, running=running, within=within, now=now)
    risks = [candidate for candidate in (of_topics, of_tables) if candidate is not None]
    earliest_risk = min(risks, key=lambda candidate: candidate.at, default=None)
    if earliest_risk is None:
        return {"risk": "", "risk_at": None}
    return {
        "risk": earliest_risk.sentence,
        "risk_at": _steady(earliest_risk.at, query.risk_at, now),
    }


def _steady(at: datetime, stored_at: datetime | None, now: datetime) -> datetime:
    """Return the stored time of a loss if it is about the same: since when, if it has occurred."""
    if stored_at is None:
        return at
    occurred = at <= now and stored_at <= now
    return stored_at if occurred or abs(at - stored_at) < _SAME_TIME else at


def store_risk(query: Query, wanted: dict[str, Any]) -> bool:
    """Write risk and reachability if they have changed; return whether they have."""
    fresh = {name: value for name, value in wanted.items() if getattr(query, name) != value}
    if not fresh:
        return False
    # Compare-and-set: of two concurrent passes, the one that read the older row does nothing.
    won = Query.objects.filter(
        pk=query.pk,
        risk=query.risk,
        source_reachable=query.source_reachable,
        source_unreachable_since=query.source_unreachable_since,
    ).update(**fresh)
    if won and "source_reachable" in fresh:
        reconcile_soon(query.application_id)
    return bool(won)
