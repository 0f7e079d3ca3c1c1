"""Determine the health of a started query as one verdict, with its evidence in numbers.

Idle is not stalled, a real-time batch is not late, and a query that reads all available data and
ends cannot lag. The batches of a continuous query are its continuous epochs. Nothing is guessed:
silence is called BLIND if the checkpoint shows that work continues.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from queries.domain.counts import counted
from queries.domain.definitions.spec import ENDING_TRIGGERS, HOLDING_TRIGGERS, TriggerKind
from queries.domain.kafka.lag import LAG_FRESH
from queries.domain.readings import Dated, span
from queries.domain.states import Verdict
from queries.domain.supervision.executors import NONE_FOR
from queries.domain.supervision.health.watermarks import Waiting

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
class Batch:
    """One executed batch, according to its progress."""

    batch: int
    at: datetime  # the trigger's start
    duration_ms: int
    rows: int


@dataclass(frozen=True, slots=True)
class HealthSeen:
    """Everything known about a query that is RUNNING, or that Spark has started."""

    now: datetime
    trigger: TriggerKind
    interval_ms: int  # of the trigger; 0: as fast as possible
    running_since: datetime  # first commit or idle event of this run, or else when Spark started it
    batches: Sequence[Batch] = ()  # the newest of this run, oldest first
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
    waiting_state: Waiting | None = None  # state rows that are waiting for the watermark
    idle_cluster_since: datetime | None = None  # its driver has no executor; None: it has


@dataclass(frozen=True, slots=True)
class Health:
    """A verdict, the sentence that proves it, and since when it has held, as far as known."""

    verdict: Verdict
    reason: str
    since: datetime | None
    source_answered: bool = False  # the query has read from a source that Headgate cannot reach


def judge(seen: HealthSeen) -> Health:
    """Return the health of a running query.

    The first that applies: ZOMBIE (a part of it is gone), STALLED (it has no executor), BLIND (no
    event, but commits continue), WAITING (its source does not respond), IDLE (or WAITING, if
    something is unread), STALLED (nothing at all for too long), LAGGING, CATCHING_UP, PROGRESSING.
    """
    found = (
        _zombie(seen)
        or _without_executors(seen)
        or _blind(seen)
        or _away(seen)
        or _idle(seen)
        or _stalled(seen)
        or _left_unread(seen)
        or _behind(seen)
        or _progressing(seen)
    )
    since = seen.unreachable_since
    if since is None or not _answered(seen, since) or found.verdict not in _READING:
        return found
    silent = span(seen.now - since)
    text = (
        f"{found.reason} The query reaches its source, but Headgate has not received a response "
        f"from the source for {silent}."
    )
    return replace(found, reason=text, source_answered=True)


def judge_start(seen: HealthSeen) -> Health | None:
    """Return what is wrong with a query that Spark has started; None if nothing is wrong.

    The query has neither committed a batch nor found that there is nothing to read. Its first batch
    may take hours, as long as its tasks finish; only heartbeats show that, so without them it is
    BLIND, not STALLED. A query that is waiting for a source that does not respond is not stalled:
    its phase shows that it is waiting.
    """
    gone = _zombie(seen)
    if gone is not None or seen.unreachable_since is not None:
        return gone
    limit = stalled_after(seen)
    heard = _newest(seen)
    beat = seen.heartbeat_at
    silent = seen.now - (heard if beat is None else max(heard, beat))
    if silent > limit:
        return Health(
            Verdict.BLIND,
            f"No event and no heartbeat for {span(silent)}: the progress of its first batch "
            "is unknown.",
            seen.now - silent,
        )
    if beat is None or seen.query_alive is None:
        return None  # nobody has checked its tasks
    proven = beat - max(heard, seen.task_at or heard)
    return _stalled(seen) if proven > limit else None


def stalled_after(seen: HealthSeen) -> timedelta:
    """Return how long nothing may happen before the query counts as STALLED."""
    return _after(seen, STALL_FLOOR_S)


def _after(seen: HealthSeen, floor_s: float) -> timedelta:
    """Return the time in which something should happen, given the trigger and its batches."""
    durations = sorted(batch.duration_ms for batch in seen.batches)
    p99_s = durations[max(0, -(-len(durations) * 99 // 100) - 1)] / 1000 if durations else 0.0
    patience = TRIGGER_FACTOR * seen.interval_ms / 1000 + max(P99_FACTOR * p99_s, floor_s)
    return timedelta(seconds=patience)


def _zombie(seen: HealthSeen) -> Health | None:
    gone = [
        name
        for name, alive in (
            ("its JVM", seen.jvm_alive),
            ("the query inside the driver", seen.query_alive),
        )
        if alive is False
    ]
    if not gone:
        return None
    return Health(
        Verdict.ZOMBIE,
        f"It should be running, but {' and '.join(gone)} {'have' if gone[1:] else 'has'} ended."
        f"{_late_heartbeat(seen)}",
        None,
    )


def _blind(seen: HealthSeen) -> Health | None:
    """Use the checkpoint, if it was checked, to tell silence from a standstill."""
    word = _newest(seen)
    limit = stalled_after(seen)
    if seen.commits_at is None or seen.now - word <= limit:
        return None
    if seen.now - seen.commits_at > limit:
        return None  # no commits either
    return Health(
        Verdict.BLIND,
        f"No event for {span(seen.now - word)}, but a commit was written to its checkpoint "
        f"{span(seen.now - seen.commits_at)} ago.",
        word,
    )


#: Verdicts for a query that is reading its source.
_READING = frozenset(
    {Verdict.IDLE, Verdict.PROGRESSING, Verdict.CATCHING_UP, Verdict.LAGGING, Verdict.WAITING}
)


def _answered(seen: HealthSeen, since: datetime) -> bool:
    """Return whether the query has read from its source since Headgate lost contact with it."""
    idle = seen.idle_at is not None and seen.idle_at > since
    return idle or any(batch.at > since for batch in seen.batches)


def _away(seen: HealthSeen) -> Health | None:
    """Return WAITING if the source has responded to neither Headgate nor the query."""
    since = seen.unreachable_since
    if since is None or _answered(seen, since):
        return None
    return Health(
        Verdict.WAITING,
        f"Its source has not responded for {span(seen.now - since)}; the query continues "
        "automatically once the source responds.",
        since,
    )


def _idle(seen: HealthSeen) -> Health | None:
    """Return IDLE, or WAITING if there is something to read for which no batch has begun."""
    idle = _nothing_to_read(seen)
    if idle is None:
        return None
    error = seen.source_error
    if error is not None and error.read_at > _newest_batch(seen):
        text = error.at(seen.now, fresh_for=LAG_FRESH)
        return replace(idle, verdict=Verdict.WAITING, reason=f"{text} {idle.reason}")
    if seen.waiting_state is not None:
        idle = replace(idle, reason=f"{idle.reason} {seen.waiting_state}")
    if seen.waiting:
        return replace(
            idle,
            verdict=Verdict.WAITING,
            reason=f"{counted(seen.waiting, 'offset is,offsets are')} waiting for an open "
            "transaction.",
        )
    idle_at = seen.idle_at or seen.now
    passed = [since for since, at in seen.unread if since + CLOCKS < idle_at < at]
    if not passed:
        return idle
    one = len(passed) == 1
    return Health(
        Verdict.WAITING,
        f"{_of_partitions(len(passed), seen)} {'holds' if one else 'hold'} unread records, but its "
        "triggers do not start a batch; it may be waiting for minOffsetsPerTrigger.",
        min(passed),
    )


def _nothing_to_read(seen: HealthSeen) -> Health | None:
    if seen.trigger is TriggerKind.CONTINUOUS:
        return _idle_epochs(seen)
    if seen.idle_at is None or seen.now - seen.idle_at > timedelta(seconds=IDLE_FRESH_S):
        return None
    last = seen.batches[-1] if seen.batches else None
    if last is not None and _end(last) > seen.idle_at:
        return None
    if last is None:
        return Health(Verdict.IDLE, "No new data since it started.", seen.running_since)
    waited = span(seen.now - _end(last))
    return Health(
        Verdict.IDLE, f"No new data for {waited}; the last batch was {last.batch}.", _end(last)
    )


def _idle_epochs(seen: HealthSeen) -> Health | None:
    """Return IDLE for a continuous query without rows, which no event reports."""
    recent = seen.batches[-WINDOW:]
    word = _newest(seen)
    if len(recent) < WINDOW or seen.now - word > stalled_after(seen):
        return None
    if any(batch.rows for batch in recent):
        return None
    read = [batch for batch in seen.batches if batch.rows]
    since = _end(read[-1]) if read else seen.running_since
    return Health(
        Verdict.IDLE,
        f"No new data for {span(seen.now - since)}; continuous epochs continue, the last is "
        f"{recent[-1].batch}.",
        since,
    )


def _stalled(seen: HealthSeen) -> Health | None:
    word = _sign_of_work(seen)
    limit = stalled_after(seen)
    if seen.now - word <= limit:
        return None
    heart = _late_heartbeat(seen)
    if not heart and seen.heartbeat_at is not None:
        heart = " Its driver still sends heartbeats."
    if seen.trigger is TriggerKind.CONTINUOUS:
        return Health(
            Verdict.STALLED,
            f"No continuous epoch for {span(seen.now - word)}; the limit is {span(limit)}. "
            f"It needs one core per source partition.{heart}",
            word,
        )
    return Health(
        Verdict.STALLED,
        f"No batch, no event and no finished task for {span(seen.now - word)}; the limit is "
        f"{span(limit)}.{heart}",
        word,
    )


def _late_heartbeat(seen: HealthSeen) -> str:
    """Return how old a driver's report is if it is old, as a sentence that follows another."""
    beat = seen.heartbeat_at
    if beat is None or seen.now - beat <= timedelta(seconds=HEARTBEAT_LATE_S):
        return ""
    return f" Its driver's last heartbeat is {span(seen.now - beat)} old."


def _left_unread(seen: HealthSeen) -> Health | None:
    """Return LAGGING if a whole batch skipped partitions that had something to read.

    This does not apply to a query that reads only what existed at its start: it leaves later
    records unread.
    """
    if seen.trigger in ENDING_TRIGGERS:
        return None
    left = [
        since
        for since, at in seen.unread
        if any(since + CLOCKS < batch.at and _end(batch) + CLOCKS < at for batch in seen.batches)
    ]
    if not left:
        return None
    cores = ""
    if seen.trigger in HOLDING_TRIGGERS:
        cores = " It needs one core per source partition."
    return Health(
        Verdict.LAGGING,
        f"{_of_partitions(len(left), seen)} {'holds' if len(left) == 1 else 'hold'} records that "
        f"no batch has read for {span(seen.now - min(left))}.{cores}",
        min(left),
    )


def _of_partitions(count: int, seen: HealthSeen) -> str:
    return f"{count} of {counted(seen.partitions, 'partition')}"


def _behind(seen: HealthSeen) -> Health | None:
    """Compare input with processing, if there is a backlog or batches are too long.

    A real-time batch is never late, and a single batch that reads everything (once) has no next
    batch.
    """
    recent = seen.batches[-WINDOW:]
    if seen.trigger in (TriggerKind.REAL_TIME, TriggerKind.ONCE):
        return None
    found = _backlog(seen, recent) or _long_batches(seen, recent)
    if found is None:
        return None
    came, done, evidence, since = found
    evidence = f"{evidence} Input {_rate(came)}, processed {_rate(done)}."
    word = _sign_of_work(seen)
    quiet = came * RATE_MARGIN < done and seen.now - word > _after(seen, QUIET_FLOOR_S)
    if came * RATE_MARGIN < done and not quiet:
        return Health(Verdict.CATCHING_UP, evidence, since)
    if seen.trigger is TriggerKind.AVAILABLE_NOW:
        return None  # it reads what existed at its start, and ends
    if quiet:  # the rates are those of before
        evidence = f"{evidence} Since then, no batch, no event and no finished task for "
        return Health(Verdict.LAGGING, f"{evidence}{span(seen.now - word)}.", word)
    return Health(Verdict.LAGGING, evidence, since)


Rates = tuple[float, float, str, datetime]  # input, processed, evidence, since when


def _backlog(seen: HealthSeen, recent: Sequence[Batch]) -> Rates | None:
    """Return the rates if the source has more than the next batches will read at once."""
    if seen.backlog is None or seen.arrival_rate is None or len(recent) < LONG_BATCHES:
        return None
    first, last = recent[0], recent[-1]
    backlog = max(0, seen.backlog - seen.waiting)
    span_s = (last.at - first.at).total_seconds()
    largest = max(batch.rows for batch in recent)
    if backlog <= BACKLOG_BATCHES * largest or span_s <= 0:
        return None
    done = sum(batch.rows for batch in recent[:-1]) / span_s
    evidence = f"{backlog:,} {seen.unit} are unread; the largest recent batch read {largest:,}."
    return seen.arrival_rate, done, evidence, first.at


def _long_batches(seen: HealthSeen, recent: Sequence[Batch]) -> Rates | None:
    """Return the mean rates of batches that took longer than the trigger's interval."""
    if seen.trigger is not TriggerKind.PROCESSING_TIME or seen.interval_ms == 0:
        return None
    long = [batch for batch in recent if batch.duration_ms > seen.interval_ms]
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
        f"{_ms(seen.interval_ms)} (median {_ms(typical)})."
    )
    return came if seen.arrival_rate is None else seen.arrival_rate, done, evidence, long[0].at


def _without_executors(seen: HealthSeen) -> Health | None:
    """Return STALLED if nothing can run for lack of an executor, since no event reports that."""
    since = seen.idle_cluster_since
    if since is None or seen.now - since < NONE_FOR:
        return None
    return Health(
        Verdict.STALLED,
        f"Its driver has had no executor for {span(seen.now - since)}; no tasks run until "
        f"the cluster provides one.{_late_heartbeat(seen)}",
        since,
    )


def _progressing(seen: HealthSeen) -> Health:
    if not seen.batches:
        text = "Its first batch has committed."
        if not seen.committed:
            text = "It has found no new data so far; no batch has committed yet."
        return Health(Verdict.PROGRESSING, text, seen.running_since)
    last = seen.batches[-1]
    if seen.trigger is TriggerKind.CONTINUOUS:
        return Health(
            Verdict.PROGRESSING,
            f"Continuous epoch {last.batch} read {counted(last.rows, 'row')} in "
            f"{_ms(last.duration_ms)} and committed "
            f"{span(max(timedelta(0), seen.now - _end(last)))} ago.",
            seen.running_since,
        )
    against = {
        TriggerKind.PROCESSING_TIME: f" of the trigger's {_ms(seen.interval_ms)}",
        TriggerKind.REAL_TIME: ", the length of a real-time batch",
    }.get(seen.trigger, "")
    if seen.interval_ms == 0:
        against = ""
    return Health(
        Verdict.PROGRESSING,
        f"Batch {last.batch} took {_ms(last.duration_ms)}{against} and read "
        f"{counted(last.rows, 'row')}, {span(max(timedelta(0), seen.now - _end(last)))} ago.",
        seen.running_since,
    )


def _newest(seen: HealthSeen) -> datetime:
    """Return the time of the latest event; a finished task shows nothing about batches."""
    words = [seen.running_since, seen.last_event_at, seen.idle_at]
    if seen.batches:
        words.append(_end(seen.batches[-1]))
    return max(word for word in words if word is not None)


def _newest_batch(seen: HealthSeen) -> datetime:
    """Return when this run's newest batch ended, or when it began to run without one."""
    return _end(seen.batches[-1]) if seen.batches else seen.running_since


def _sign_of_work(seen: HealthSeen) -> datetime:
    """Return the time of the latest event or finished task."""
    return max(_newest(seen), seen.task_at or seen.running_since)


def _end(batch: Batch) -> datetime:
    return batch.at + timedelta(milliseconds=batch.duration_ms)


def _ms(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"


def _rate(rows: float) -> str:
    return f"{rows:,.0f} rows/s" if rows >= 100 else f"{rows:.3g} rows/s"
