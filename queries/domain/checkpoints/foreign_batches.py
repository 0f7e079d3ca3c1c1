"""Find the batches in a checkpoint's log that none of our runs can have made.

A program that is not started by Headgate knows no lock of ours: it cannot be kept off a checkpoint.
What it does is seen in the log, by the time that Spark writes into each batch's offsets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

#: An end is recorded after it has happened; this much for clocks that step.
AFTER_ITS_END = timedelta(seconds=1)
#: A batch is reported within seconds of its end; a heartbeat so much younger came without it.
REPORTED_WITHIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch that was begun, by the time in its offsets (not the file's: files are copied)."""

    number: int
    at: datetime


@dataclass(frozen=True, slots=True)
class RunSpan:
    """When one of our runs lived, and what was heard of it."""

    began: datetime
    ended: datetime | None  # None: it is open
    reported: int | None = None  # the newest batch that it has reported
    heard: datetime | None = None  # its driver's newest heartbeat: all before it has arrived


def foreign_batches(
    logged: Sequence[LoggedBatch], runs: Sequence[RunSpan], *, since: datetime, now: datetime
) -> list[LoggedBatch]:
    """Return the batches after `since` that no run made, in the log's order.

    `runs` are all runs since then. A batch is foreign that was begun while none of them lived, or
    that a living one has never reported, beyond the one that may be its batch in flight.
    """
    later = [one for one in logged if since < one.at <= now]
    return [one for one in later if _is_foreign(one, later, runs, now)]


def _is_foreign(
    one: LoggedBatch, logged: Sequence[LoggedBatch], runs: Sequence[RunSpan], now: datetime
) -> bool:
    around = [run for run in runs if _covers(run, one, now)]
    return all(_made_elsewhere(one, logged, run, now) for run in around)


def _covers(run: RunSpan, one: LoggedBatch, now: datetime) -> bool:
    return run.began <= one.at <= (run.ended or now) + AFTER_ITS_END


def _made_elsewhere(
    one: LoggedBatch, logged: Sequence[LoggedBatch], run: RunSpan, now: datetime
) -> bool:
    if run.heard is None or run.heard - one.at < REPORTED_WITHIN:
        return False  # its report may be on the way, or lost with its driver
    own = [each.number for each in logged if _covers(run, each, now)]
    in_flight = min(own) if run.reported is None else run.reported + 1
    return one.number > in_flight
