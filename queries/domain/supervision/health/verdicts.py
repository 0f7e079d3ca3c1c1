"""Determine the health of a started query as one verdict, with its evidence in numbers.

Idle is not stalled, a real-time batch is not late, and a query that reads all available data and
ends cannot lag. The batches of a continuous query are its continuous epochs. Nothing is guessed:
silence is called NO_TELEMETRY if the checkpoint shows that work continues.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from queries.domain.definitions.spec import ENDING_TRIGGERS, HOLDING_TRIGGERS, TriggerKind
from queries.domain.kafka.lag import LAG_FRESH
from queries.domain.readings import Dated, counted, span
from queries.domain.states import Verdict
from queries.domain.supervision.health.watermarks import WaitingRows
from queries.domain.supervision.observation import NONE_FOR

#: Batches examined for LAGGING and CATCHING_UP, newest last.
WINDOW = 5
#: How many of these batches must be longer than the trigger's interval.
LONG_BATCHES = 3
#: A backlog counts if it exceeds this many times the largest of these batches; less is read at
#: once.
BACKLOG_BATCHES = 2
#: STALLED after 1.5 × trigger + max(2 × p99 of a batch, 60 s): docs/decisions/0005.
TRIGGER_FACTOR = 1.5
P99_FACTOR = 2.0
STALL_FLOOR_S = 60.0
#: Nothing is catching up if it has been silent for as long as that formula with this floor says.
QUIET_FLOOR_S = 15.0
#: Spark sends an idle event at most every 10 s (`noDataProgressEventInterval`). If none has arrived
#: for three times as long, an earlier one says nothing about now.
IDLE_FRESH_S = 30.0
#: Heartbeats arrive every few seconds; if none arrives for this long, that is mentioned.
HEARTBEAT_LATE_S = 30.0
#: The clocks of two hosts may differ by this much: times closer than this cannot be ordered.
CLOCKS = timedelta(seconds=2)
#: Rates within 2 % of each other count as equal.
RATE_MARGIN = 1.02


@dataclass(frozen=True, slots=True)
class ExecutedBatch:
    """One executed batch, according to its progress."""

    batch: int
    at: datetime  # the trigger's start
    duration_ms: int
    rows: int


@dataclass(frozen=True, slots=True)
class HealthSignals:
    """Everything known about a query that is RUNNING, or that Spark has started."""

    now: datetime
    trigger: TriggerKind
    interval_ms: int  # of the trigger; 0: as fast as possible
    running_since: datetime  # first commit or idle event of this run, or else when Spark started it
    batches: Sequence[ExecutedBatch] = ()  # the newest of this run, oldest first
    idle_at: datetime | None = None  # newest idle event
    last_event_at: datetime | None = None  # newest event of any kind, of this run
    heartbeat_at: datetime | None = None  # newest heartbeat of its driver
    jvm_alive: bool | None = None  # by that heartbeat, as is the next field; None: unknown
    query_alive: bool | None = None
    commits_at: datetime | None = None  # newest entry in the checkpoint's commits/, if checked
    task_at: datetime | None = None  # when its newest finished task was seen
    backlog: int | None = None  # unread in its sources, in `unit`; None: unknown
    unit: str = "records"  # "offsets" if they may not be records
    waiting: int = 0  # part of the backlog: behind an open transaction, not readable yet
    partitions: int = 0  # number of partitions of its sources
    #: (unread since, seen at) for the partitions with something to read
    unread: Sequence[tuple[datetime, datetime]] = ()
    arrival_rate: float | None = None  # records per second added to them
    unreachable_since: datetime | None = None  # its source does not answer; None: it does, or n/k
    source_error: Dated | None = None  # the brokers answer, but a topic that it reads is gone
    committed: bool = True  # this run has committed a batch; False: only idle events prove it
    waiting_state: WaitingRows | None = None  # state rows that are waiting for the watermark
    idle_cluster_since: datetime | None = None  # its driver has no executor; None: it has


@dataclass(frozen=True, slots=True)
class Health:
    """A verdict, the sentence that proves it, and since when it has held, as far as known."""

    verdict: Verdict
    reason: str
    since: datetime | None
    source_answered: bool = False  # the query has read from a source that Headgate cannot reach


def judge(signals: HealthSignals) -> Health:
    """Return the health of a running query.

    The first that applies: QUERY_MISSING (a part of it is gone), STALLED (it has no executor),
    NO_TELEMETRY (no event, but commits continue), WAITING (its source does not respond), IDLE (or
    WAITING, if something is unread), STALLED (nothing at all for too long), LAGGING, CATCHING_UP,
    PROGRESSING.
    """
    health = (
        _zombie(signals)
        or _without_executors(signals)
        or _blind(signals)
        or _away(signals)
        or _idle(signals)
        or _stalled(signals)
        or _left_unread(signals)
        or _behind(signals)
        or _progressing(signals)
    )
    since = signals.unreachable_since
    if since is None or not _answered(signals, since) or health.verdict not in _READING:
        return health
    silent = span(signals.now - since)
    text = (
        f"{health.reason} The query reaches its source, but Headgate has not received a response "
        f"from the source for {silent}."
    )
    return replace(health, reason=text, source_answered=True)


def judge_start(signals: HealthSignals) -> Health | None:
    """Return what is wrong with a query that Spark has started; None if nothing is wrong.

    The query has neither committed a batch nor found that there is nothing to read. Its first batch
    may take hours, as long as its tasks finish; only heartbeats show that, so without them it is
    NO_TELEMETRY, not STALLED. A query that is waiting for a source that does not respond is not
    stalled: its phase shows that it is waiting.
    """
    missing = _zombie(signals)
    if missing is not None or signals.unreachable_since is not None:
        return missing
    limit = stalled_after(signals)
    last_event_at = _newest(signals)
    beat = signals.heartbeat_at
    silent = signals.now - (last_event_at if beat is None else max(last_event_at, beat))
    if silent > limit:
        return Health(
            Verdict.NO_TELEMETRY,
            f"No event and no heartbeat for {span(silent)}: the progress of its first batch "
            "is unknown.",
            signals.now - silent,
        )
    if beat is None or signals.query_alive is None:
        return None  # nobody has checked its tasks
    proven = beat - max(last_event_at, signals.task_at or last_event_at)
    return _stalled(signals) if proven > limit else None


def stalled_after(signals: HealthSignals) -> timedelta:
    """Return how long nothing may happen before the query counts as STALLED."""
    return _after(signals, STALL_FLOOR_S)


def _after(signals: HealthSignals, floor_s: float) -> timedelta:
    """Return the time in which something should happen, given the trigger and its batches."""
    durations = sorted(batch.duration_ms for batch in signals.batches)
    p99_s = durations[max(0, -(-len(durations) * 99 // 100) - 1)] / 1000 if durations else 0.0
    patience = TRIGGER_FACTOR * signals.interval_ms / 1000 + max(P99_FACTOR * p99_s, floor_s)
    return timedelta(seconds=patience)


def _zombie(signals: HealthSignals) -> Health | None:
    ended_parts = [
        name
        for name, alive in (
            ("its JVM", signals.jvm_alive),
            ("the query inside the driver", signals.query_alive),
        )
        if alive is False
    ]
    if not ended_parts:
        return None
    return Health(
        Verdict.QUERY_MISSING,
        f"It should be running, but {' and '.join(ended_parts)} "
        f"{'have' if ended_parts[1:] else 'has'} ended."
        f"{_late_heartbeat(signals)}",
        None,
    )


def _blind(signals: HealthSignals) -> Health | None:
    """Use the checkpoint, if it was checked, to distinguish silence from a standstill."""
    word = _newest(signals)
    limit = stalled_after(signals)
    if signals.commits_at is None or signals.now - word <= limit:
        return None
    if signals.now - signals.commits_at > limit:
        return None  # no commits either
    return Health(
        Verdict.NO_TELEMETRY,
        f"No event for {span(signals.now - word)}, but a commit was written to its checkpoint "
        f"{span(signals.now - signals.commits_at)} ago.",
        word,
    )


#: Verdicts for a query that is reading its source.
_READING = frozenset(
    {Verdict.IDLE, Verdict.PROGRESSING, Verdict.CATCHING_UP, Verdict.LAGGING, Verdict.WAITING}
)


def _answered(signals: HealthSignals, since: datetime) -> bool:
    """Return whether the query has read from its source since Headgate lost contact with it."""
    idle = signals.idle_at is not None and signals.idle_at > since
    return idle or any(batch.at > since for batch in signals.batches)


def _away(signals: HealthSignals) -> Health | None:
    """Return WAITING if the source has responded to neither Headgate nor the query."""
    since = signals.unreachable_since
    if since is None or _answered(signals, since):
        return None
    return Health(
        Verdict.WAITING,
        f"Its source has not responded for {span(signals.now - since)}; the query continues "
        "automatically once the source responds.",
        since,
    )


def _idle(signals: HealthSignals) -> Health | None:
    """Return IDLE, or WAITING if there is something to read for which no batch has begun."""
    idle = _nothing_to_read(signals)
    if idle is None:
        return None
    error = signals.source_error
    if error is not None and error.read_at > _newest_batch(signals):
        text = error.at(signals.now, fresh_for=LAG_FRESH)
        return replace(idle, verdict=Verdict.WAITING, reason=f"{text} {idle.reason}")
    if signals.waiting_state is not None:
        idle = replace(idle, reason=f"{idle.reason} {signals.waiting_state}")
    if signals.waiting:
        return replace(
            idle,
            verdict=Verdict.WAITING,
            reason=f"{counted(signals.waiting, 'offset is,offsets are')} waiting for an open "
            "transaction.",
        )
    idle_at = signals.idle_at or signals.now
    passed = [since for since, at in signals.unread if since + CLOCKS < idle_at < at]
    if not passed:
        return idle
    is_single = len(passed) == 1
    return Health(
        Verdict.WAITING,
        f"{_of_partitions(len(passed), signals)} {'holds' if is_single else 'hold'} unread "
        "records, but its "
        "triggers do not start a batch; it may be waiting for minOffsetsPerTrigger.",
        min(passed),
    )


def _nothing_to_read(signals: HealthSignals) -> Health | None:
    if signals.trigger is TriggerKind.CONTINUOUS:
        return _idle_epochs(signals)
    if signals.idle_at is None or signals.now - signals.idle_at > timedelta(seconds=IDLE_FRESH_S):
        return None
    last = signals.batches[-1] if signals.batches else None
    if last is not None and _end(last) > signals.idle_at:
        return None
    if last is None:
        return Health(Verdict.IDLE, "No new data since it started.", signals.running_since)
    waited = span(signals.now - _end(last))
    return Health(
        Verdict.IDLE, f"No new data for {waited}; the last batch was {last.batch}.", _end(last)
    )


def _idle_epochs(signals: HealthSignals) -> Health | None:
    """Return IDLE for a continuous query without rows, which no event reports."""
    recent = signals.batches[-WINDOW:]
    word = _newest(signals)
    if len(recent) < WINDOW or signals.now - word > stalled_after(signals):
        return None
    if any(batch.rows for batch in recent):
        return None
    read = [batch for batch in signals.batches if batch.rows]
    since = _end(read[-1]) if read else signals.running_since
    return Health(
        Verdict.IDLE,
        f"No new data for {span(signals.now - since)}; continuous epochs continue, the last is "
        f"{recent[-1].batch}.",
        since,
    )


def _stalled(signals: HealthSignals) -> Health | None:
    word = _sign_of_work(signals)
    limit = stalled_after(signals)
    if signals.now - word <= limit:
        return None
    heart = _late_heartbeat(signals)
    if not heart and signals.heartbeat_at is not None:
        heart = " Its driver still sends heartbeats."
    if signals.trigger is TriggerKind.CONTINUOUS:
        return Health(
            Verdict.STALLED,
            f"No continuous epoch for {span(signals.now - word)}; the limit is {span(limit)}. "
            f"It needs one core per source partition.{heart}",
            word,
        )
    return Health(
        Verdict.STALLED,
        f"No batch, no event and no finished task for {span(signals.now - word)}; the limit is "
        f"{span(limit)}.{heart}",
        word,
    )


def _late_heartbeat(signals: HealthSignals) -> str:
    """Return how old a driver's report is if it is old, as a sentence that follows another."""
    beat = signals.heartbeat_at
    if beat is None or signals.now - beat <= timedelta(seconds=HEARTBEAT_LATE_S):
        return ""
    return f" Its driver's last heartbeat is {span(signals.now - beat)} old."


def _left_unread(signals: HealthSignals) -> Health | None:
    """Return LAGGING if a whole batch skipped partitions that had something to read.

    This does not apply to a query that reads only the data that existed at its start: it leaves
    later records unread.
    """
    if signals.trigger in ENDING_TRIGGERS:
        return None
    left = [
        since
        for since, at in signals.unread
        if any(since + CLOCKS < batch.at and _end(batch) + CLOCKS < at for batch in signals.batches)
    ]
    if not left:
        return None
    cores = ""
    if signals.trigger in HOLDING_TRIGGERS:
        cores = " It needs one core per source partition."
    return Health(
        Verdict.LAGGING,
        f"{_of_partitions(len(left), signals)} {'holds' if len(left) == 1 else 'hold'} records "
        f"that no batch has read for {span(signals.now - min(left))}.{cores}",
        min(left),
    )


def _of_partitions(count: int, signals: HealthSignals) -> str:
    return f"{count} of {counted(signals.partitions, 'partition')}"


def _behind(signals: HealthSignals) -> Health | None:
    """Compare input with processing, if there is a backlog or batches are too long.

    A real-time batch is never late, and a single batch that reads everything (once) has no next
    batch.
    """
    recent = signals.batches[-WINDOW:]
    if signals.trigger in (TriggerKind.REAL_TIME, TriggerKind.ONCE):
        return None
    rates = _backlog(signals, recent) or _long_batches(signals, recent)
    if rates is None:
        return None
    came, done, evidence, since = rates
    evidence = f"{evidence} Input {_rate(came)}, processed {_rate(done)}."
    word = _sign_of_work(signals)
    quiet = came * RATE_MARGIN < done and signals.now - word > _after(signals, QUIET_FLOOR_S)
    if came * RATE_MARGIN < done and not quiet:
        return Health(Verdict.CATCHING_UP, evidence, since)
    if signals.trigger is TriggerKind.AVAILABLE_NOW:
        return None  # it reads what existed at its start, and ends
    if quiet:  # the rates are those of before
        evidence = f"{evidence} Since then, no batch, no event and no finished task for "
        return Health(Verdict.LAGGING, f"{evidence}{span(signals.now - word)}.", word)
    return Health(Verdict.LAGGING, evidence, since)


Rates = tuple[float, float, str, datetime]  # input, processed, evidence, since when


def _backlog(signals: HealthSignals, recent: Sequence[ExecutedBatch]) -> Rates | None:
    """Return the rates if the source has more than the next batches will read at once."""
    if signals.backlog is None or signals.arrival_rate is None or len(recent) < LONG_BATCHES:
        return None
    first, last = recent[0], recent[-1]
    backlog = max(0, signals.backlog - signals.waiting)
    span_s = (last.at - first.at).total_seconds()
    largest = max(batch.rows for batch in recent)
    if backlog <= BACKLOG_BATCHES * largest or span_s <= 0:
        return None
    done = sum(batch.rows for batch in recent[:-1]) / span_s
    evidence = f"{backlog:,} {signals.unit} are unread; the largest recent batch read {largest:,}."
    return signals.arrival_rate, done, evidence, first.at


def _long_batches(signals: HealthSignals, recent: Sequence[ExecutedBatch]) -> Rates | None:
    """Return the mean rates of batches that took longer than the trigger's interval."""
    if signals.trigger is not TriggerKind.PROCESSING_TIME or signals.interval_ms == 0:
        return None
    long = [batch for batch in recent if batch.duration_ms > signals.interval_ms]
    rates = [
        (batch.rows / gap, batch.rows * 1000 / batch.duration_ms)
        for before, batch in pairwise(recent)
        if batch in long and batch.rows and (gap := (batch.at - before.at).total_seconds()) > 0
    ]
    if len(long) < LONG_BATCHES or not rates:
        return None
    came = sum(rate for rate, _ in rates) / len(rates)
    done = sum(rate for _, rate in rates) / len(rates)
    typical = sorted(batch.duration_ms for batch in recent)[len(recent) // 2]
    evidence = (
        f"{len(long)} of the last {len(recent)} batches took longer than the trigger's "
        f"{_ms(signals.interval_ms)} (median {_ms(typical)})."
    )
    return (
        came if signals.arrival_rate is None else signals.arrival_rate,
        done,
        evidence,
        long[0].at,
    )


def _without_executors(signals: HealthSignals) -> Health | None:
    """Return STALLED if nothing can run for lack of an executor, since no event reports that."""
    since = signals.idle_cluster_since
    if since is None or signals.now - since < NONE_FOR:
        return None
    return Health(
        Verdict.STALLED,
        f"Its driver has had no executor for {span(signals.now - since)}; no tasks run until "
        f"the cluster provides one.{_late_heartbeat(signals)}",
        since,
    )


def _progressing(signals: HealthSignals) -> Health:
    if not signals.batches:
        text = "Its first batch has committed."
        if not signals.committed:
            text = "It has found no new data so far; no batch has committed yet."
        return Health(Verdict.PROGRESSING, text, signals.running_since)
    last = signals.batches[-1]
    if signals.trigger is TriggerKind.CONTINUOUS:
        return Health(
            Verdict.PROGRESSING,
            f"Continuous epoch {last.batch} read {counted(last.rows, 'row')} in "
            f"{_ms(last.duration_ms)} and committed "
            f"{span(max(timedelta(0), signals.now - _end(last)))} ago.",
            signals.running_since,
        )
    against = {
        TriggerKind.PROCESSING_TIME: f" of the trigger's {_ms(signals.interval_ms)}",
        TriggerKind.REAL_TIME: ", the length of a real-time batch",
    }.get(signals.trigger, "")
    if signals.interval_ms == 0:
        against = ""
    return Health(
        Verdict.PROGRESSING,
        f"Batch {last.batch} took {_ms(last.duration_ms)}{against} and read "
        f"{counted(last.rows, 'row')}, {span(max(timedelta(0), signals.now - _end(last)))} ago.",
        signals.running_since,
    )


def _newest(signals: HealthSignals) -> datetime:
    """Return the time of the latest event; a finished task shows nothing about batches."""
    words = [signals.running_since, signals.last_event_at, signals.idle_at]
    if signals.batches:
        words.append(_end(signals.batches[-1]))
    return max(word for word in words if word is not None)


def _newest_batch(signals: HealthSignals) -> datetime:
    """Return when this run's newest batch ended; without a batch, when it began to run."""
    return _end(signals.batches[-1]) if signals.batches else signals.running_since


def _sign_of_work(signals: HealthSignals) -> datetime:
    """Return the time of the latest event or finished task."""
    return max(_newest(signals), signals.task_at or signals.running_since)


def _end(batch: ExecutedBatch) -> datetime:
    return batch.at + timedelta(milliseconds=batch.duration_ms)


def _ms(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"


def _rate(rows: float) -> str:
    return f"{rows:,.0f} rows/s" if rows >= 100 else f"{rows:.3g} rows/s"
