"""Find batches in a checkpoint's log that none of our runs can have executed.

A program that Headgate did not start does not respect our locks, so Headgate cannot keep it away
from a checkpoint. Its batches are detected by the time that Spark writes into each batch's offsets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

#: An end is recorded after it has happened; this allows for clock steps.
AFTER_ITS_END = timedelta(seconds=1)
#: A batch is reported within seconds of its end. If a heartbeat this much later still did not
#: mention it, the run did not make it.
REPORTED_WITHIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A started batch, with the time from its offsets (not from its file: files may be copied)."""

    number: int
    at: datetime


@dataclass(frozen=True, slots=True)
class RunSpan:
    """When one of our runs was alive, and what it reported."""

    began: datetime
    ended: datetime | None  # None: it is open
    reported: int | None = None  # the newest batch that it reported
    heard: datetime | None = None  # its driver's newest heartbeat: everything before it has arrived


def foreign_batches(
    logged: Sequence[LoggedBatch], runs: Sequence[RunSpan], *, since: datetime, now: datetime
) -> list[LoggedBatch]:
    """Return the batches after `since` that no run executed, in the log's order.

    `runs` are all runs since then. A batch is foreign if it began while no run was alive, or if a
    live run never reported it, except for one batch that may be that run's batch in flight.
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
        return False  # its report may be delayed, or lost with its driver
    own = [each.number for each in logged if _covers(run, each, now)]
    in_flight = min(own) if run.reported is None else run.reported + 1
    return one.number > in_flight
