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
    heartbeat_at: datetime | None = (
        None  # its driver's newest heartbeat: everything before it has arrived
    )


def foreign_batches(
    logged: Sequence[LoggedBatch], runs: Sequence[RunSpan], *, since: datetime, now: datetime
) -> list[LoggedBatch]:
    """Return the batches after `since` that no run executed, in the log's order.

    `runs` are all runs since then. A batch is foreign if it began while no run was alive, or if a
    live run never reported it, except for one batch that may be that run's batch in flight.
    """
    later = [batch for batch in logged if since < batch.at <= now]
    return [batch for batch in later if _is_foreign(batch, later, runs, now)]


def _is_foreign(
    batch: LoggedBatch, logged: Sequence[LoggedBatch], runs: Sequence[RunSpan], now: datetime
) -> bool:
    covering = [run for run in runs if _covers(run, batch, now)]
    return all(_made_elsewhere(batch, logged, run, now) for run in covering)


def _covers(run: RunSpan, batch: LoggedBatch, now: datetime) -> bool:
    return run.began <= batch.at <= (run.ended or now) + AFTER_ITS_END


def _made_elsewhere(
    batch: LoggedBatch, logged: Sequence[LoggedBatch], run: RunSpan, now: datetime
) -> bool:
    if run.heartbeat_at is None or run.heartbeat_at - batch.at < REPORTED_WITHIN:
        return False  # its report may be delayed, or lost with its driver
    own = [other.number for other in logged if _covers(run, other, now)]
    in_flight = min(own) if run.reported is None else run.reported + 1
    return batch.number > in_flight
