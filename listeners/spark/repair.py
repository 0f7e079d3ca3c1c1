"""Find the batches that the listener bus did not bring, and fetch them from the query itself.

A query keeps its last progress objects (99 by default) whatever the bus drops. Batch ids of a
run rise by one, so a hole between two is certain; a batch that the query remembers and the
bus has not brought for a while counts as missing too.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Progress = dict[str, Any]

_REMEMBERED = 5_000  # batch ids stored per run; more than any query remembers
_WIDEST_HOLE = 100_000  # ids of one hole that are tracked one by one


@dataclass(slots=True)
class RunBatches:
    """Which batches of one run have been reported, which are missing."""

    highest: int | None = None
    missing: int = 0  # all that were found missing, the repaired ones included
    repaired: int = 0
    holes: set[int] = field(default_factory=set)  # missing and not given up
    _told: set[int] = field(default_factory=set)

    def tell(self, batch: int) -> bool:
        """Note a batch that the bus brought; return False where it was reported before."""
        if batch in self._told:
            return False
        if self.highest is not None and batch > self.highest + 1:
            hole = range(max(self.highest + 1, batch - _WIDEST_HOLE), batch)
            self.holes.update(hole)
            self.missing += batch - self.highest - 1
        if batch in self.holes:  # late after all
            self.holes.discard(batch)
            self.missing -= 1
        self._note(batch)
        return True

    def recall(self, remembered: list[Progress], *, overdue_at: float | None) -> list[Progress]:
        """Return those of a query's remembered batches that must be reported, oldest first.

        A batch newer than all that the bus brought is left to the bus until it ended before
        `overdue_at` (seconds since 1970); None: the run has ended, nothing more will come.
        Holes older than the query's memory are given up; they stay counted as missing.
        """
        found = []
        for progress in remembered:
            batch = int(progress["batchId"])
            if batch in self._told:
                continue
            newest = self.highest is None or batch > self.highest
            if newest and overdue_at is not None and ended_at(progress) > overdue_at:
                continue
            if batch not in self.holes:
                self.missing += 1
            self.holes.discard(batch)
            self.repaired += 1
            found.append(progress)
        for progress in found:
            self._note(int(progress["batchId"]))
        if remembered:
            oldest = min(int(progress["batchId"]) for progress in remembered)
            self.holes = {batch for batch in self.holes if batch >= oldest}
        return sorted(found, key=lambda progress: int(progress["batchId"]))

    def _note(self, batch: int) -> None:
        self._told.add(batch)
        self.highest = batch if self.highest is None else max(self.highest, batch)
        if len(self._told) > 2 * _REMEMBERED:
            self._told = {told for told in self._told if told > self.highest - _REMEMBERED}


def executed(progress: Progress) -> bool:
    """Return whether a batch ran: a trigger that found nothing leaves an entry without one."""
    return "addBatch" in (progress.get("durationMs") or {})


def ended_at(progress: Progress) -> float:
    """Return when a batch ended, in seconds since 1970."""
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return began + float(progress.get("batchDuration") or 0) / 1000


def recent_executed(jvm: Any, jquery: Any) -> list[Progress]:
    """Return the executed batches that a query remembers, oldest first, in one round trip.

    Works after the query has ended too. Scala prints the array as `Array(JSON, JSON, …)`.
    """
    text = jvm.scala.runtime.ScalaRunTime.stringOf(jquery.recentProgress())
    entries: list[Progress] = json.loads(f"[{text[len('Array(') : -len(')')]}]")
    return [entry for entry in entries if executed(entry)]
