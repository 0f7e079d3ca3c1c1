"""Choose the batch in a checkpoint that gives the most information when executed again."""

from queries.checkpoints.logs import CheckpointLogs
from queries.domain.checkpoints.logs import UnreadableLog, begun_at

#: Maximum number of batches without rows (watermark only) to skip.
LOOKED_AT = 5


def batch_to_replay(logs: CheckpointLogs) -> int | None:
    """Return the newest committed batch that read data, or the newest one if none is near.

    None if no batch was committed.
    """
    committed = logs.committed()
    for batch in reversed(committed[-LOOKED_AT:]):
        try:
            now, before = logs.offsets(batch), logs.offsets(batch - 1)
        except UnreadableLog:
            break
        if now is not None and begun_at(before, now) != now.sources:
            return batch
    return committed[-1] if committed else None


def is_continuous(logs: CheckpointLogs, batch: int) -> bool:
    """Return whether continuous processing wrote the batch; micro-batches cannot continue then."""
    offsets = logs.readable_offsets(batch)
    return offsets is not None and offsets.timestamp_ms is None


def pinned_configuration(logs: CheckpointLogs, batch: int) -> dict[str, str]:
    """Return the configuration in the batch's offset log."""
    offsets = logs.readable_offsets(batch)
    return offsets.conf if offsets is not None else {}
