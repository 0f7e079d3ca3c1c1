"""Read a query's continuous epochs from its checkpoint and report them as progress."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from listeners.spark.telemetry import Telemetry
from queries.domain.triggers.continuous_epochs import Epoch, QueryIdentity, progress_of
from queries.runtime.checkpoints.logs import Checkpoint

#: Seconds between looks at a checkpoint that is not local: each costs round trips.
REMOTE_LOOK_S = 1.0
#: Maximum continuous epochs reported per look; the next looks report the rest.
AT_MOST = 50


class Epochs:
    """What one run of a continuous query has committed so far."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        of: QueryIdentity,
        *,
        before: int | None,
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        self._checkpoint = checkpoint
        self._of = of
        self._tell = tell
        self._looked = 0.0  # monotonic
        self._began = datetime.now(UTC)  # start of the current epoch
        self.last = before  # the newest epoch reported, or committed before the run

    def look(self) -> list[dict[str, Any]]:
        """Report the continuous epochs committed since the last check; return their progress."""
        if not self._checkpoint.local:
            if time.monotonic() - self._looked < REMOTE_LOOK_S:
                return []
            self._looked = time.monotonic()
        found = []
        for number in self._checkpoint.committed_after(self.last)[:AT_MOST]:
            progress = self._progress(number)
            self._tell(progress)
            found.append(progress)
        return found

    def _progress(self, number: int) -> dict[str, Any]:
        committed = self._checkpoint.written_at(f"commits/{number}") or datetime.now(UTC)
        offsets = self._checkpoint.offsets(number)
        epoch = Epoch(
            number=number,
            began=min(self._began, committed),
            committed=committed,
            start={place: each["start"] for place, each in offsets.items()},
            end={place: each["end"] for place, each in offsets.items()},
        )
        self.last, self._began = number, committed
        return progress_of(epoch, self._of)


def of_continuous(
    query: Any,
    spec: dict[str, Any],
    name: str,
    checkpoint: Checkpoint,
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
    return Epochs(checkpoint, named, before=before, tell=telemetry.epoch_committed)
