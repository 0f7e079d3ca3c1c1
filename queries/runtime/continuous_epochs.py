"""Read a query's continuous epochs from its checkpoint and report them as progress."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from listeners.spark.telemetry import Telemetry
from queries.domain.triggers.continuous_epochs import Epoch, QueryIdentity, progress_of
from queries.runtime.checkpoints.logs import CheckpointReader

#: Seconds between looks at a checkpoint that is not local: each costs round trips.
REMOTE_LOOK_S = 1.0
#: Maximum continuous epochs reported per look; the next looks report the rest.
AT_MOST = 50


class Epochs:
    """What one run of a continuous query has committed so far."""

    def __init__(
        self,
        checkpoint: CheckpointReader,
        of: QueryIdentity,
        *,
        before: int | None,
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self._checkpoint = checkpoint
        self._of = of
        self._report = report
        self._looked = 0.0  # monotonic
        self._began = datetime.now(UTC)  # start of the current epoch
        self.last = before  # the newest epoch reported, or committed before the run

    def look(self) -> list[dict[str, Any]]:
        """Report the continuous epochs committed since the last check; return their progress."""
        if not self._checkpoint.local:
            if time.monotonic() - self._looked < REMOTE_LOOK_S:
                return []
            self._looked = time.monotonic()
        reports = []
        for number in self._checkpoint.committed_after(self.last)[:AT_MOST]:
            progress = self._progress(number)
            self._report(progress)
            reports.append(progress)
        return reports

    def _progress(self, number: int) -> dict[str, Any]:
        committed = self._checkpoint.written_at(f"commits/{number}") or datetime.now(UTC)
        offsets = self._checkpoint.offsets(number)
        epoch = Epoch(
            number=number,
            began=min(self._began, committed),
            committed=committed,
            start={partition: offset_range["start"] for partition, offset_range in offsets.items()},
            end={partition: offset_range["end"] for partition, offset_range in offsets.items()},
        )
        self.last, self._began = number, committed
        return progress_of(epoch, self._of)


def of_continuous(
    query: Any,
    spec: dict[str, Any],
    name: str,
    checkpoint: CheckpointReader,
    *,
    before: int | None,
    telemetry: Telemetry,
) -> Epochs | None:
    """Return the reporter that replaces Spark's for a continuous query; None for other triggers.

    `before` is the newest commit from before the run.
    """
    if spec.get("trigger", {}).get("kind") != "continuous":
        return None
    named = QueryIdentity(
        query_id=str(query.id),
        run_id=str(query.runId),
        name=name,
        source=", ".join(str(source["name"]) for source in spec.get("sources", ())),
        sink=str((spec.get("sink") or {}).get("format", "")),
    )
    return Epochs(checkpoint, named, before=before, report=telemetry.epoch_committed)
