"""Replays with async progress tracking: those of a run, and those of a crash now.

A batch in flight during a kill has not reported anything, so the most that it can have written is
counted.

The data come from the checkpoint's own files (where a start would continue) and from the batches
that the driver has reported (the work done since then).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headgate_ground.wire import EventKind
from listeners.models import Event, Latest, Progress
from queries.checkpoints.logs import Logs, NotLocal, unknown_because
from queries.domain.checkpoints.logs import (
    UnreadableLog,
    beyond,
    missing_batch,
    records_between,
    resumed_after,
)
from queries.domain.sparks import spark_of
from queries.domain.states import BAD_OUTCOMES, RunOutcome
from queries.domain.triggers.async_progress import Tracking, rows_in_flight, tracking
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Run
from queries.models.history import Failure
from queries.selectors.checkpoint_logs import available_logs

#: Progress rows read to add up what follows the last logged batch.
ROWS_READ = 5000
#: Previous batches from which the one in flight is estimated.
RECENT = 20


@dataclass(frozen=True, slots=True)
class Exposure:
    """The batches that a crash now would replay in a query with async progress tracking."""

    interval_ms: int
    by_default: bool  # on because it is Spark's default in real-time mode without state
    kept: int | None  # batch to continue after; None: from the beginning
    kept_at: datetime | None  # when its commit was written
    missing: int | None  # batch whose offsets Spark would lack with tracking off
    newest: int | None  # newest executed batch
    running: int | None  # batch in progress, as far as known
    batches: int  # executed or in progress, to be replayed
    rows: int | None  # in those; None: unknown
    rows_from: str  # "offsets", "progress" or "", for the executed ones
    seconds: float | None  # of work since the last logged batch; None: unknown
    rows_in_flight: int | None = 0  # part of `rows` in the running batch; None: unknown
    unreadable: str = ""  # why the checkpoint's logs are unknown
    seen_at: datetime | None = None  # when its driver read them; None: they were read now


@dataclass(frozen=True, slots=True)
class UnloggedBatches:
    """The batches whose offsets Spark would not find once async progress tracking is off."""

    missing: int
    newest: int  # newest batch in the log
    before: int | None  # its predecessor in the log


def exposure(query: Query, *, now: datetime) -> Exposure | None:
    """Return the replay of a crash now; None if async progress tracking is off.

    This is decided by the running revision, or else by the newest one. However, if the newest has
    tracking off and the log has a gap, the revision that ran last decides, because tracking has not
    been switched off safely yet.
    """
    run = Run.objects.filter(query=query).select_related("revision").order_by("-epoch").first()
    live = run if run is not None and run.outcome == RunOutcome.OPEN else None
    checkpoint = Checkpoint.objects.filter(query=query, retired_at=None).first()
    revision = live.revision if live else query.revisions.order_by("-number").first()
    if revision is None or checkpoint is None:
        return None
    async_tracking = tracking_of(revision, live)
    if async_tracking is None and run is not None and live is None and gap_of(checkpoint.location):
        async_tracking = tracking_of(run.revision, run)
    if async_tracking is None:
        return None
    try:
        logs = available_logs(checkpoint.location)
        begun, committed = logs.begun(), logs.committed()
    except (NotLocal, OSError) as error:
        return _blind(async_tracking, unknown_because(error))
    resume_batch = resumed_after(begun, committed)
    rows = _behind(query, run, resume_batch)
    counted, counted_from = _rows(logs, resume_batch, rows)
    committed_at = _committed_at(logs, resume_batch)
    newest = rows[-1].batch if rows else (resume_batch if run else None)
    running = _running(live, begun, newest)
    in_flight = _in_flight(logs, live, running, begun) if live and running is not None else 0
    return Exposure(
        interval_ms=async_tracking.interval_ms,
        by_default=async_tracking.by_default,
        kept=resume_batch,
        kept_at=committed_at,
        missing=missing_batch(begun),
        newest=newest,
        running=running,
        batches=len(rows) + (running is not None),
        rows=counted + (in_flight or 0) if counted is not None else None,
        rows_from=counted_from,
        rows_in_flight=in_flight,
        seconds=_seconds(rows, committed_at, now, live is not None),
        seen_at=logs.seen_at,
    )


def gap_of(location: str) -> UnloggedBatches | None:
    """Return the gap at the end of a checkpoint's offset log; None if there is none.

    Also None if the log is unknown: only its driver can then determine the gap.
    """
    try:
        begun = available_logs(location).begun()
    except (NotLocal, OSError):
        return None
    missing = missing_batch(begun)
    if missing is None:
        return None
    return UnloggedBatches(
        missing=missing, newest=begun[-1], before=begun[-2] if len(begun) > 1 else None
    )


def tracking_of(revision: QueryRevision, run: Run | None) -> Tracking | None:
    """Return a revision's async progress tracking; None if it is off.

    The run's driver provides the configuration, and the run's batches show whether the query keeps
    state, which disables Spark's default. Without a run, the application's newest revision provides
    the configuration.
    """
    async_tracking = tracking(revision.spec)
    if async_tracking is None or not async_tracking.by_default:
        return async_tracking
    application = (
        run.driver.application_revision if run else revision.query.application.target_revision
    )
    if application is not None:
        spec = application.spec
        async_tracking = tracking(revision.spec, spec.get("conf"), spark_of(spec))
    return None if async_tracking is None or _keeps_state(revision.query_id) else async_tracking


def _keeps_state(query: int) -> bool:
    newest = Progress.objects.filter(query=query).order_by("-at").first()
    return newest is not None and bool(newest.body.get("stateOperators"))


def _blind(async_tracking: Tracking, why: str) -> Exposure:
    nothing = (None, None, None, None, None, 0, None, "", None)
    return Exposure(async_tracking.interval_ms, async_tracking.by_default, *nothing, unreadable=why)


def _behind(query: Query, run: Run | None, resume_batch: int | None) -> list[Progress]:
    """Return the reported batches of the newest run that follow the last logged one."""
    if run is None:
        return []
    rows = Progress.objects.filter(run=run.pk)
    if resume_batch is not None:
        rows = rows.filter(batch__gt=resume_batch)
    return list(rows.defer("body").order_by("-batch")[:ROWS_READ])[::-1]


def _rows(logs: Logs, resume_batch: int | None, rows: list[Progress]) -> tuple[int | None, str]:
    """Return how many rows a replay would read, and how they were counted."""
    if not rows:
        return 0, ""
    try:
        offsets = logs.offsets(resume_batch) if resume_batch is not None else None
    except UnreadableLog:
        offsets = None
    return rows_behind(offsets.sources.values() if offsets is not None else (), rows)


def rows_behind(begin: Iterable[Any], rows: list[Progress]) -> tuple[int, str]:
    """Return the rows between the offsets `begin` and the end of the last batch of `rows`.

    "offsets" means that they were counted from offsets; "progress" means that they are the rows
    reported by the batches, because the offsets cannot be counted.
    """
    counts = [records_between(*pair) for pair in zip(begin, ends(rows[-1]), strict=False)]
    if counts and None not in counts:
        return sum(count or 0 for count in counts), "offsets"
    return sum(row.num_input_rows for row in rows), "progress"


def _committed_at(logs: Logs, resume_batch: int | None) -> datetime | None:
    if resume_batch is None:
        return None
    return logs.written_at("commits", resume_batch) or logs.written_at("offsets", resume_batch)


def _running(live: Run | None, begun: list[int], newest: int | None) -> int | None:
    """Return the batch in progress: the one logged after the newest executed one, else the next.

    Returns None if the query has reported since its newest batch that there is nothing to read.
    """
    if live is None or live.started_at is None or _idles(live):
        return None
    if begun and (newest is None or begun[-1] > newest):
        return begun[-1]
    return None if newest is None else newest + 1


def _idles(live: Run) -> bool:
    line = Latest.objects.filter(query=live.query_id, run=live.pk).first()
    newest = Progress.objects.filter(run=live.pk).order_by("-batch").first()
    if line is None or line.idle_at is None or line.idle_at < (live.started_at or line.idle_at):
        return False
    return newest is None or line.idle_at > ended(newest)


def _in_flight(logs: Logs, live: Run, running: int, begun: list[int]) -> int | None:
    """Return how many rows the running batch may already have written."""
    recent = list(Progress.objects.filter(run=live.pk).order_by("-batch")[:RECENT])
    logged = logs.readable_offsets(running) if running in begun else None
    if logged is not None and recent:
        exact = rows_in_flight(ends(recent[0]), list(logged.sources.values()), (), exact=True)
        if exact is not None:
            return exact
    return rows_in_flight((), None, [row.num_input_rows for row in recent], exact=False)


def _seconds(
    rows: list[Progress], committed_at: datetime | None, now: datetime, live: bool
) -> float | None:
    if not rows:
        return 0.0
    since = committed_at or rows[0].at
    until = now if live else ended(rows[-1])
    return max(0.0, (until - since).total_seconds())


def ends(row: Progress) -> list[Any]:
    """Return the end offset of each source of a batch, in the definition's order."""
    return [source.get("endOffset") for source in row.body.get("sources") or []]


def starts(row: Progress) -> list[Any]:
    """Return the start offset of each source of a batch, in the definition's order."""
    return [source.get("startOffset") for source in row.body.get("sources") or []]


def ended(row: Progress) -> datetime:
    """Return when a batch ended."""
    return row.at + timedelta(milliseconds=row.batch_duration_ms)


def replayed_by(run: Run) -> dict[str, Any] | None:
    """Return what a run replayed from the previous run, measured from offsets.

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
    earlier_runs = Run.objects.filter(
        query=run.query_id, checkpoint=run.checkpoint_id, epoch__lt=run.epoch
    ).order_by("-epoch")[:20]
    return next(
        (
            candidate
            for candidate in earlier_runs
            if Progress.objects.filter(run=candidate.pk).exists()
        ),
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
