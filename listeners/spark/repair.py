"""Find batches that the listener bus did not deliver, and get them from the query itself.

A query keeps its last progress objects (99 by default) regardless of what the bus drops. A run's
batch ids increase by one, so a hole between two ids proves a loss; a batch that the query remembers
but that the bus has not delivered for a while also counts as missing.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headgate_ground.tolerant.values import count, time_of

Progress = dict[str, Any]

_REMEMBERED = 5_000  # batch ids stored per run; more than any query remembers
_WIDEST_HOLE = 100_000  # ids of a hole that are tracked individually


@dataclass(slots=True)
class RunBatches:
    """A run's reported and missing batches."""

    highest: int | None = None
    missing: int = 0  # all that were ever missing, including repaired ones
    repaired: int = 0
    holes: set[int] = field(default_factory=set)  # missing and not given up
    _reported: set[int] = field(default_factory=set)

    def note_reported(self, batch: int) -> bool:
        """Record a batch from the bus; return False if it was reported before."""
        if batch in self._reported:
            return False
        if self.highest is not None and batch > self.highest + 1:
            hole = range(max(self.highest + 1, batch - _WIDEST_HOLE), batch)
            self.holes.update(hole)
            self.missing += batch - self.highest - 1
        if batch in self.holes:  # late, but delivered
            self.holes.discard(batch)
            self.missing -= 1
        self._note(batch)
        return True

    def recall(self, remembered: list[Progress], *, overdue_at: float | None) -> list[Progress]:
        """Return the query's remembered batches that still must be reported, oldest first.

        A batch newer than any from the bus is left to the bus unless it ended before `overdue_at`
        (seconds since 1970); None means that the run has ended and the bus will not deliver any
        more. Holes older than the oldest remembered batch are given up, but still count as missing.
        """
        unreported = []
        for progress in remembered:
            batch = int(progress["batchId"])
            if batch in self._reported:
                continue
            newest = self.highest is None or batch > self.highest
            if newest and overdue_at is not None and ended_at(progress) > overdue_at:
                continue
            if batch not in self.holes:
                self.missing += 1
            self.holes.discard(batch)
            self.repaired += 1
            unreported.append(progress)
        for progress in unreported:
            self._note(int(progress["batchId"]))
        if remembered:
            oldest = min(int(progress["batchId"]) for progress in remembered)
            self.holes = {batch for batch in self.holes if batch >= oldest}
        return sorted(unreported, key=lambda progress: int(progress["batchId"]))

    def _note(self, batch: int) -> None:
        self._reported.add(batch)
        self.highest = batch if self.highest is None else max(self.highest, batch)
        if len(self._reported) > 2 * _REMEMBERED:
            self._reported = {
                number for number in self._reported if number > self.highest - _REMEMBERED
            }


def executed(progress: Progress) -> bool:
    """Return whether a batch was executed: triggers without data leave an entry without a batch."""
    return "addBatch" in (progress.get("durationMs") or {})


def ended_at(progress: Progress) -> float:
    """Return when a batch ended, in seconds since 1970."""
    began = time_of(progress.get("timestamp")) or datetime.now(UTC)
    return began.timestamp() + (count(progress.get("batchDuration")) or 0) / 1000


def recent_executed(jvm: Any, jquery: Any) -> list[Progress]:
    """Return a query's remembered executed batches, oldest first, in one round trip.

    Also works after the query has ended. Scala prints the array as `Array(JSON, JSON, …)`.
    """
    text = jvm.scala.runtime.ScalaRunTime.stringOf(jquery.recentProgress())
    entries: list[Progress] = json.loads(f"[{text[len('Array(') : -len(')')]}]")
    return [entry for entry in entries if executed(entry)]
