"""What a crash now would make a query with async progress tracking do again, and what one did.

Read from the checkpoint's own files (what a start would go on from) beside the batches that
the driver has reported (what has been done since).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from listeners.models import Progress
from queries.checkpoints.logs import CheckpointLogs, NotLocal
from queries.domain.async_progress import (
    beyond,
    missing_batch,
    records_between,
    resumed_after,
    tracking,
)
from queries.domain.checkpoint_log import Unreadable
from queries.domain.states import RunOutcome
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.models.failures import Failure

#: Rows of progress that are read to add up what lies behind the last kept batch.
ROWS_READ = 5000


@dataclass(frozen=True, slots=True)
class Exposure:
    """What a crash now would replay, of a query with async progress tracking."""

    interval_ms: int
    kept: int | None  # batch that a start would go on after; None: from the beginning
    kept_at: datetime | None  # when its commit was written
    missing: int | None  # batch whose offsets Spark would miss with tracking off; None: none
    newest: int | None  # newest executed batch
    running: int | None  # batch at work now, as far as that can be told
    batches: int  # executed, and to be done again
    rows: int | None  # of those; None: not known
    rows_from: str  # "offsets" | "progress" | ""
    seconds: float | None  # of work since the last kept batch; None: not known
    unreadable: str = ""  # why the checkpoint's files could not be read


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that Spark would ask for in vain once async progress tracking is off."""

    missing: int
    newest: int  # newest batch that the log holds
    before: int | None  # the one before it in the log


def exposure(query: Query, *, now: datetime) -> Exposure | None:
    """Return what a crash now would replay; None where async progress tracking is off.

    The running revision counts, else the newest; and the one that ran last, where the newest
    has it off and the log has a gap: the way off is still to go.
    """
    run = Run.objects.filter(query=query).select_related("revision").order_by("-epoch").first()
    live = run if run is not None and run.outcome == RunOutcome.OPEN else None
    checkpoint = Checkpoint.objects.filter(query=query, retired_at=None).first()
    revision = live.revision if live else query.revisions.order_by("-number").first()
    if revision is None or checkpoint is None:
        return None
    asked = tracking(revision.spec)
    if asked is None and run is not None and live is None and gap_of(checkpoint.location):
        asked = tracking(run.revision.spec)
    if asked is None:
        return None
    try:
        logs = CheckpointLogs.at(checkpoint.location)
    except NotLocal as error:
        return _blind(asked.interval_ms, str(error))
    begun, committed = logs.begun(), logs.committed()
    kept = resumed_after(begun, committed)
    rows = _behind(query, run, kept)
    counted, counted_from = _rows(logs, kept, rows)
    kept_at = _kept_at(logs, kept)
    newest = rows[-1].batch if rows else (kept if run else None)
    return Exposure(
        interval_ms=asked.interval_ms,
        kept=kept,
        kept_at=kept_at,
        missing=missing_batch(begun),
        newest=newest,
        running=_running(live, begun, newest),
        batches=len(rows),
        rows=counted,
        rows_from=counted_from,
        seconds=_seconds(rows, kept_at, now, live is not None),
    )


def gap_of(location: str) -> Gap | None:
    """Return the gap at the end of a checkpoint's offset log; None where there is none.

    None, too, for a checkpoint that does not lie on this host: only its driver can read it.
    """
    try:
        begun = CheckpointLogs.at(location).begun()
    except NotLocal:
        return None
    missing = missing_batch(begun)
    if missing is None:
        return None
    return Gap(missing=missing, newest=begun[-1], before=begun[-2] if len(begun) > 1 else None)


def _blind(interval_ms: int, why: str) -> Exposure:
    return Exposure(interval_ms, None, None, None, None, None, 0, None, "", None, why)


def _behind(query: Query, run: Run | None, kept: int | None) -> list[Progress]:
    """Return the reported batches of the newest run that lie behind the last kept one."""
    if run is None:
        return []
    rows = Progress.objects.filter(run=run.pk)
    if kept is not None:
        rows = rows.filter(batch__gt=kept)
    return list(rows.defer("body").order_by("-batch")[:ROWS_READ])[::-1]


def _rows(logs: CheckpointLogs, kept: int | None, rows: list[Progress]) -> tuple[int | None, str]:
    """Return how many rows a replay would read, and how they were counted."""
    if not rows:
        return 0, ""
    try:
        offsets = logs.offsets(kept) if kept is not None else None
    except Unreadable:
        offsets = None
    if offsets is not None:
        counts = [
            records_between(start, end)
            for start, end in zip(offsets.sources.values(), ends(rows[-1]), strict=False)
        ]
        if counts and None not in counts:
            return sum(count or 0 for count in counts), "offsets"
    return sum(row.num_input_rows for row in rows), "progress"


def _kept_at(logs: CheckpointLogs, kept: int | None) -> datetime | None:
    if kept is None:
        return None
    return logs.written_at("commits", kept) or logs.written_at("offsets", kept)


def _running(live: Run | None, begun: list[int], newest: int | None) -> int | None:
    """Return the batch at work: what the log names beyond the newest executed, else the next."""
    if live is None or live.started_at is None:
        return None
    if begun and (newest is None or begun[-1] > newest):
        return begun[-1]
    return None if newest is None else newest + 1


def _seconds(
    rows: list[Progress], kept_at: datetime | None, now: datetime, live: bool
) -> float | None:
    if not rows:
        return 0.0
    since = kept_at or rows[0].at
    until = now if live else ended(rows[-1])
    return max(0.0, (until - since).total_seconds())


def ends(row: Progress) -> list[Any]:
    """Return the end offset of each source of a batch, in the definition's order."""
    return [one.get("endOffset") for one in row.body.get("sources") or []]


def starts(row: Progress) -> list[Any]:
    """Return the start offset of each source of a batch, in the definition's order."""
    return [one.get("startOffset") for one in row.body.get("sources") or []]


def ended(row: Progress) -> datetime:
    """Return when a batch ended."""
    return row.at + timedelta(milliseconds=row.batch_duration_ms)


# --- after a start ----------------------------------------------------------------------


def replayed_by(run: Run) -> dict[str, Any] | None:
    """Return what a run did again of what the run before it had done, measured from offsets.

    {batches, rows, seconds, first, last, after, from_run}: so many batches of the earlier run,
    from `first` to `last`, ended behind the offsets that this one began at. All of it is 0 and
    None where nothing was done again; the whole is None while the telemetry of this run's
    first batch is not there, or where no earlier run is known.
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
        "rows": _replayed_rows(begin, again),
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


def _replayed_rows(begin: list[Any], again: list[Progress]) -> int:
    counts = [
        records_between(start, end) for start, end in zip(begin, ends(again[-1]), strict=False)
    ]
    if counts and None not in counts:
        return sum(count or 0 for count in counts)
    return sum(row.num_input_rows for row in again)


def replays_of(failure: Failure) -> list[Run]:
    """Return the runs that measured what they did again after a failure, one a query.

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
