"""The first and last batches of a run, with the offsets they read."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from listeners.models import Progress


@dataclass(frozen=True, slots=True)
class EdgeBatch:
    """One batch of a run: its time, size and offsets."""

    batch: int
    at: datetime
    rows: int
    duration_ms: int
    repaired: bool
    sources: list[tuple[str, Any, Any]]  # (description, start offset, end offset)


def edge_batches(run_id: int) -> tuple[EdgeBatch, EdgeBatch] | None:
    """Return the first and the last executed batch of a run; None if none is stored."""
    rows = Progress.objects.filter(run=run_id).order_by("batch")
    first, last = rows.first(), rows.last()
    return (_edge(first), _edge(last)) if first and last else None


def _edge(row: Progress) -> EdgeBatch:
    sources = row.body.get("sources") or ()
    return EdgeBatch(
        batch=row.batch,
        at=row.at,
        rows=row.num_input_rows,
        duration_ms=row.batch_duration_ms,
        repaired=row.repaired,
        sources=[
            (str(one.get("description", "")), one.get("startOffset"), one.get("endOffset"))
            for one in sources
        ],
    )
