"""Read a query's slow batches, each with the reason for its duration."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_

from django.db.models import Exists, OuterRef, Q

from listeners.models import Progress, SlowBatch
from queries.domain.triggers.slow_batches import (
    BatchCause,
    CauseShare,
    Diagnosis,
    diagnose,
    evidence_of,
)

#: How far back the page looks, and an incident: an older batch does not explain the present.
SHOWN, RECENT = timedelta(days=1), timedelta(hours=1)
#: Rows of the table, and causes of each.
MOST, _LARGEST = 5, 4
#: Queries whose batches are read in one statement: databases limit its conditions.
_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Explained:
    """A slow batch and the reason."""

    batch: int
    run: int
    at: datetime  # its trigger's start
    took_ms: int
    rows: int
    diagnosis: Diagnosis

    @property
    def causes(self) -> tuple[CauseShare, ...]:
        """Return the largest causes, largest first."""
        return self.diagnosis.causes[:_LARGEST]

    @property
    def is_skewed(self) -> bool:
        """Return whether few tasks had most of the rows."""
        return any(finding.cause is BatchCause.SKEW for finding in self.causes)


def slow_batches(query: int, *, now: datetime) -> list[Explained]:
    """Return the slowest batches of the last day, slowest first.

    The slowest batch of all is included if its driver sent no evidence on it.
    """
    evidence = SlowBatch.objects.filter(query=query, at__gt=now - SHOWN).order_by("-took_ms")
    bodies = {(slow_batch.run, slow_batch.batch): slow_batch.body for slow_batch in evidence[:MOST]}
    rows = Progress.objects.filter(query=query, at__gt=now - SHOWN)
    slowest = rows.order_by("-batch_duration_ms").values_list("pk", "batch_duration_ms").first()
    return _explained(bodies, slowest[0] if slowest and slowest[1] >= _LONG_MS else None)


#: A shorter batch without evidence is not worth a line.
_LONG_MS = 1_000


def why_slow(since: Mapping[int, datetime], *, now: datetime) -> dict[int, str]:
    """Return the sentence on the slowest batch of each query since it became slow.

    `since` is by query. An older batch does not explain what began after it, and a run's first
    batch does not count: it also loads code and state. The newest would change an incident's text
    every few seconds. Two database queries per 200 queries, and one more.
    """
    if not since:
        return {}
    before = Progress.objects.filter(run=OuterRef("run"), batch__lt=OuterRef("batch"))
    rows = SlowBatch.objects.filter(Exists(before), query__in=since, at__gt=now - RECENT)
    ordered = rows.order_by("took_ms", "-pk").values_list("query", "pk", "at")
    late_enough = {query: pk for query, pk, at in ordered if at >= since[query]}
    slowest = sorted(late_enough.values())  # of each query, the last row counts
    sentences: dict[int, str] = {}
    for start in range(0, len(slowest), _AT_ONCE):
        evidence = SlowBatch.objects.filter(pk__in=slowest[start : start + _AT_ONCE])
        bodies = {(slow_batch.run, slow_batch.batch): slow_batch.body for slow_batch in evidence}
        if not bodies:  # they have expired since
            continue
        batches = reduce(or_, (Q(run=run, batch=batch) for run, batch in bodies))
        for row in Progress.objects.filter(batches):
            sentences[row.query] = _explain_batch(row, bodies[row.run, row.batch]).diagnosis.says
    return sentences


def _explained(bodies: dict[tuple[int, int], object], other: int | None) -> list[Explained]:
    """Return batches with their reasons; `other` is the key of one that may lack evidence."""
    runs, batches = {run for run, _ in bodies}, {batch for _, batch in bodies}
    rows = Progress.objects.filter(run__in=runs, batch__in=batches)
    rows_by_id = {row.pk: row for row in rows if (row.run, row.batch) in bodies}
    if other is not None and (row := Progress.objects.filter(pk=other).first()):
        rows_by_id[row.pk] = row
    slowest = sorted(rows_by_id.values(), key=lambda row: -row.batch_duration_ms)[:MOST]
    return [_explain_batch(row, bodies.get((row.run, row.batch))) for row in slowest]


def _explain_batch(row: Progress, body: object) -> Explained:
    evidence = evidence_of(row.body, body if isinstance(body, dict) else None)
    return Explained(
        row.batch, row.run, row.at, row.batch_duration_ms, row.num_input_rows, diagnose(evidence)
    )
