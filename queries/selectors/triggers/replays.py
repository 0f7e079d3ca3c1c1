"""Measure what a run replayed of the run before it, from the offsets that both reported."""

from typing import Any

from listeners.models import Progress
from queries.domain.checkpoints.logged_offsets import beyond
from queries.models.drivers import Run
from queries.models.failures import Failure
from queries.selectors.triggers.replay_exposure import ROWS_READ, ended, ends, rows_behind, starts


def replayed_by(run: Run) -> dict[str, Any] | None:
    """Return what a run replayed of the run before it, measured from offsets.

    {batches, rows, seconds, first, last, after, from_run}: `batches` batches of the
    earlier run, from `first` to `last`, ended after the offsets at which this one began. The first
    three are 0 where nothing was replayed. {} where no earlier run is known; None while the
    telemetry of this run's first batch is missing.
    """
    first = Progress.objects.filter(run=run.pk).order_by("batch").first()
    if first is None:
        return None
    before = _run_before(run)
    if before is None:
        return {}
    begin = starts(first)
    again: list[Progress] = []
    kept = None
    newest_first = Progress.objects.filter(run=before).order_by("-batch")
    for row in newest_first[:ROWS_READ].iterator(chunk_size=200):
        if not _ended_behind(row, begin, first.batch):
            kept = row
            break
        again.insert(0, row)
    if not again:
        return {"batches": 0, "rows": 0, "seconds": 0.0}
    return {
        "batches": len(again),
        "rows": rows_behind(begin, again)[0],
        "seconds": (ended(again[-1]) - (ended(kept) if kept else again[0].at)).total_seconds(),
        "first": again[0].batch,
        "last": again[-1].batch,
        "after": kept.batch if kept else None,
        "from_run": again[-1].run,
    }


def _run_before(run: Run) -> int | None:
    """Return the newest earlier run on the same checkpoint that has reported a batch."""
    earlier = (
        Run.objects.filter(query=run.query_id, checkpoint=run.checkpoint_id, epoch__lt=run.epoch)
        .order_by("-epoch")
        .values_list("pk", flat=True)[:20]
    )
    return next((pk for pk in earlier if Progress.objects.filter(run=pk).exists()), None)


def _ended_behind(row: Progress, begin: list[Any], first_batch: int) -> bool:
    pairs = list(zip(ends(row), begin, strict=False))
    if not pairs or any(start is None for _, start in pairs):
        return row.batch >= first_batch
    return any(beyond(end, start) for end, start in pairs)


def replays_of(failure: Failure) -> list[Run]:
    """Return the runs that measured what they replayed after a failure, one for each query.

    A failure of a run is followed by the query's next runs; the death of a driver by those of
    all queries that it ran.
    """
    ended = [failure.run] if failure.run else Run.objects.filter(driver=failure.driver_id)
    found = []
    for run in ended:
        later = Run.objects.filter(query=run.query_id, epoch__gt=run.epoch).order_by("epoch")
        measured = later.exclude(replayed=None).select_related("query").first()
        if measured is not None and (measured.replayed or {}).get("batches"):
            found.append(measured)
    return found
