"""Correct ledger entries for records that turned out not to be lost.

No entry is ever changed or removed: a correction is a separate entry that names the corrected one,
the evidence, and the author. A note is also added to the incident that reported the loss.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db import transaction

from controlplane.nudge import changed
from queries.domain.access import Act
from queries.domain.alerts.forms import IncidentKind
from queries.domain.errors import Conflict, Invalid, NotAllowed, Problem
from queries.domain.kafka.losses import OffsetGap, Offsets
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss
from queries.models.definitions import Query
from queries.selectors.kafka.lag import left, read_ids
from queries.services.access.audit import record_act
from queries.services.alerts.incidents import take_back

NOTE_MOST = 1_000  # characters


def correct(*, loss: Loss, reason: str, actor: str, now: datetime) -> list[Loss]:
    """Correct the rest of an entry, for a reason that a user gives; return the corrections.

    Raises `Invalid` if there is no reason, `NotAllowed` if the entry is itself a correction, and
    `Conflict` if it has already been corrected entirely.
    """
    reason = reason.strip()
    if not reason or len(reason) > NOTE_MOST:
        way_out = (
            f"Explain how you know that nothing was lost, in at most {NOTE_MOST:,} characters."
        )
        raise Invalid([Problem("reason", reason[:80], "is empty or too long.", way_out)])
    if loss.corrects_id is not None:
        raise NotAllowed(
            f"Entry {loss.pk} is itself a correction.",
            way_out=(
                "The corrected loss is recorded again automatically if it turns out to be real."
            ),
        )
    with transaction.atomic():
        Query.objects.select_for_update().get(pk=loss.query_id)
        loss = Loss.objects.prefetch_related("corrections").get(pk=loss.pk)
        pieces: list[OffsetGap | None] = [*left(loss)]
        if loss.partition is None and not loss.corrections.exists():
            pieces = [None]  # a count without offsets
        if not pieces:
            raise Conflict(
                f"Entry {loss.pk} is already corrected.", way_out="Reload the loss ledger."
            )
        made = [_line(loss, piece, reason, now, actor=actor) for piece in pieces]
        _add_note(loss.query, made, reason, now)
        details = {"loss": loss.pk, "reason": reason}
        record_act(Act.LOSS_CORRECTED, actor=actor, now=now, subject=loss.query.name, **details)
    return made


def correct_by_batch(
    *, query: Query, batch: int, span: tuple[Offsets, Offsets], now: datetime
) -> list[Loss]:
    """Correct losses in a committed batch's range (start, end): it read a record at each offset.

    This applies only to topics with known ids, because two topics with the same name use the same
    offset numbers.
    """
    start, end = span
    ids = read_ids(query.pk)
    reason = f"Batch {batch} has read a record at each of these offsets."
    made: list[Loss] = []
    rows = Loss.objects.filter(query=query, corrects=None, source__in=list(end))
    for row in rows.exclude(topic_id="").prefetch_related("corrections"):
        if row.topic_id != ids.get(row.source):
            continue
        for piece in left(row):
            first = start.get(row.source, {}).get(piece.partition, 0)
            read = _cut(piece, first, end[row.source].get(piece.partition, 0))
            if read.offsets:
                made.append(_line(row, read, reason, now, batch=batch))
    _add_note(query, made, reason, now)
    return made


def add_at_risk_note(query: Query, gaps: Iterable[OffsetGap], *, now: datetime) -> None:
    """Add a note to the incident about these offsets at risk: none of them were lost."""
    where = ", ".join(f"{gap.topic}-{gap.partition}" for gap in gaps)
    text = (
        f"Nothing was lost: a batch committed past the deleted offsets of {where}, and Spark "
        "fails a batch with missing offsets. The run had already fetched them."
    )
    take_back(query=query.pk, kind=IncidentKind.AT_RISK, text=text, now=now)


def _cut(gap: OffsetGap, first: int, until: int) -> OffsetGap:
    low, high = max(gap.first, first), min(gap.until, until)
    return OffsetGap(gap.topic, gap.partition, low, max(low, high))


def _line(
    loss: Loss,
    piece: OffsetGap | None,
    note: str,
    now: datetime,
    *,
    actor: str = "",
    batch: int | None = None,
) -> Loss:
    """Write one correction: for a piece of an entry, or for its full count if `piece` is None."""
    offsets = loss.offsets if piece is None else piece.offsets
    return Loss.objects.create(
        query_id=loss.query_id,
        kind=LossKind.CORRECTED,
        source=loss.source,
        partition=loss.partition,
        topic_id=loss.topic_id,
        from_offset=piece.first if piece else None,
        to_offset=piece.until if piece else None,
        offsets=offsets,
        records=None if loss.records is None else loss.records if piece is None else offsets,
        batch=batch,
        noticed_at=now,
        corrects=loss,
        note=note,
        noted_by=actor,
    )


def _add_note(query: Query, made: list[Loss], reason: str, now: datetime) -> None:
    """Add a note about the correction to the incident for these losses."""
    if not made:
        return
    counts: Mapping[str, list[int | None]] = {
        "records": [loss.records for loss in made],
        "offsets": [loss.offsets for loss in made],
    }
    unit = "offsets" if None in counts["records"] else "records"
    count = sum(number or 0 for number in counts[unit])
    late = all(loss.corrects is not None and loss.corrects.kind == LossKind.LATE for loss in made)
    text = f"{count:,} {unit} were not lost. {reason}"
    kind = IncidentKind.LATE_RECORDS if late else IncidentKind.RECORDS_LOST
    take_back(query=query.pk, kind=kind, text=text, now=now)
    changed(f"query:{query.pk}", f"lag:{query.pk}")
