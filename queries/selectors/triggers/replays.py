"""Measure what a run replayed of the previous run, from the offsets that both reported.

A batch in flight during a kill has not reported anything, so the most that it can have written is
counted.
"""

from typing import Any

from headgate_ground.wire import EventKind
from listeners.models import Event, Progress
from queries.domain.checkpoints.logged_offsets import beyond
from queries.domain.states import BAD_OUTCOMES
from queries.domain.triggers.async_progress import rows_in_flight
from queries.models.drivers import Run
from queries.models.failures import Failure
from queries.selectors.triggers.replay_exposure import (
    RECENT,
    ROWS_READ,
    ended,
    ends,
    rows_behind,
    starts,
)


def replayed_by(run: Run) -> dict[str, Any] | None:
    """Return what a run replayed of the previous run, measured from offsets.

    {batches, rows, seconds, first, last, after, from_run, rows_in_flight}: `batches` batches of the
    earlier run, from `first` to `last`, ended after the offsets at which this one began, or never
    ended. `rows_in_flight` is the part of `rows` in the batch that a failure or a kill interrupted.
    It is an upper bound, because no event reports it; null if it cannot be determined. `seconds`
    covers the batches that ended. The first three are 0 if nothing was replayed. Returns {} if no
    earlier run is known; None while the telemetry of this run's first batch is missing.
    """
    first = Progress.objects.filter(run=run.pk).order_by("batch").first()
    if first is None:
        return None
    before = _run_before(run)
    if before is None:
        return {}
    cut_off, in_flight = _cut_off(before, first)
    begin = starts(first)
    again: list[Progress] = []
    resume_row = None
    newest_first = Progress.objects.filter(run=before.pk).order_by("-batch")
    for row in newest_first[:ROWS_READ].iterator(chunk_size=200):
        if not _ended_behind(row, begin, first.batch):
            resume_row = row
            break
        again.insert(0, row)
    if not again and cut_off is None:
        return {"batches": 0, "rows": 0, "seconds": 0.0}
    numbers = [row.batch for row in again] + ([cut_off] if cut_off is not None else [])
    worked = again and ended(again[-1]) - (ended(resume_row) if resume_row else again[0].at)
    return {
        "batches": len(numbers),
        "rows": (rows_behind(begin, again)[0] if again else 0) + (in_flight or 0),
        "seconds": worked.total_seconds() if worked else 0.0,
        "first": numbers[0],
        "last": numbers[-1],
        "after": resume_row.batch if resume_row else None,
        "from_run": before.pk,
        "rows_in_flight": in_flight,
    }


def _cut_off(before: Run, first: Progress) -> tuple[int | None, int | None]:
    """Return the batch that the end of a run interrupted, and how many rows it may have written.

    Returns (None, 0) if there is none: the run was stopped, or had nothing to read at its end.
    `first` is the next run's first batch, which read the same data as the interrupted one, and
    perhaps more.
    """
    recent = list(Progress.objects.filter(run=before.pk).order_by("-batch")[:RECENT])
    idle = Event.objects.filter(run=before.pk, kind=EventKind.IDLE, at__gt=ended(recent[0]))
    if before.outcome not in BAD_OUTCOMES or idle.exists():
        return None, 0
    rows = [row.num_input_rows for row in recent]
    begin, end = ends(recent[0]), ends(first)
    # With a row limit, the next run's first batch may end earlier, and is then not an upper bound.
    short = any(beyond(*pair) for pair in zip(begin, end, strict=False))
    return recent[0].batch + 1, rows_in_flight(begin, None if short else end, rows, exact=False)


def _run_before(run: Run) -> Run | None:
    """Return the newest earlier run on the same checkpoint that has reported a batch."""
    earlier = Run.objects.filter(
        query=run.query_id, checkpoint=run.checkpoint_id, epoch__lt=run.epoch
    ).order_by("-epoch")[:20]
    return next(
        (candidate for candidate in earlier if Progress.objects.filter(run=candidate.pk).exists()),
        None,
    )


def _ended_behind(row: Progress, begin: list[Any], first_batch: int) -> bool:
    pairs = list(zip(ends(row), begin, strict=False))
    if not pairs or any(start is None for _, start in pairs):
        return row.batch >= first_batch
    return any(beyond(end, start) for end, start in pairs)


def replays_of(failure: Failure) -> list[Run]:
    """Return the runs that measured their replay after a failure, one for each query.

    After a run's failure, these are the query's next runs; after a driver's death, those of all the
    driver's queries.
    """
    ended = [failure.run] if failure.run else Run.objects.filter(driver=failure.driver_id)
    measured_runs = []
    for run in ended:
        later = Run.objects.filter(query=run.query_id, epoch__gt=run.epoch).order_by("epoch")
        measured = later.exclude(replayed=None).select_related("query").first()
        if measured is not None and (measured.replayed or {}).get("batches"):
            measured_runs.append(measured)
    return measured_runs
