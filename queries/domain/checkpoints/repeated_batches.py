"""Recognize a batch that Spark repeated after a restart without reading its rows.

If a driver dies after the sink's commit and before Spark's own, the next run executes the batch
again with the offsets in the log. A sink that knows the batch skips it, so Spark counts no rows;
and no event reports the first attempt. The batch has an event with 0 rows, although it was not
empty.

Source: `MicroBatchExecution` of 4.3.0. A batch that the log already holds is not constructed again,
so that its progress has none of the phases of that.
"""

from collections.abc import Mapping
from typing import Any

from headgate_ground.tolerant.values import count

#: Phases of `durationMs` in which a batch is constructed.
_CONSTRUCTED = frozenset({"latestOffset", "getOffset", "walCommit"})

UNCOUNTED = (
    "Spark repeated this batch after a restart and read none of its rows, as it does if the sink "
    "had already committed them. The rows that the first attempt read are in no count."
)


def is_uncounted(progress: Mapping[str, Any]) -> bool:
    """Return whether a batch was repeated, read no row, and its offsets are not empty.

    A continuous epoch is not constructed at all: only batches with an `addBatch` count.
    """
    phases = progress.get("durationMs")
    if not isinstance(phases, dict) or "addBatch" not in phases or phases.keys() & _CONSTRUCTED:
        return False
    if count(progress.get("numInputRows")) != 0:
        return False
    sources = progress.get("sources")
    return isinstance(sources, list) and any(map(_has_moved, sources))


def _has_moved(source: object) -> bool:
    return isinstance(source, dict) and source.get("startOffset") != source.get("endOffset")
