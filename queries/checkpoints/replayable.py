"""Which batch of a checkpoint says most when it is executed again."""

from queries.checkpoints.logs import CheckpointLogs
from queries.domain.checkpoints.logs import Unreadable

#: Batches without rows (a watermark moved on) that are passed over at most.
LOOKED_AT = 5


def batch_to_replay(logs: CheckpointLogs) -> int | None:
    """Return the newest committed batch that read something, the newest where none is near.

    None where nothing has committed.
    """
    committed = logs.committed()
    for batch in reversed(committed[-LOOKED_AT:]):
        try:
            now, before = logs.offsets(batch), logs.offsets(batch - 1)
        except Unreadable:
            break
        if now is not None and (before is None or before.sources != now.sources):
            return batch
    return committed[-1] if committed else None


def is_continuous(logs: CheckpointLogs, batch: int) -> bool:
    """Tell whether continuous processing wrote the batch: micro-batches cannot go on from it."""
    offsets = logs.readable_offsets(batch)
    return offsets is not None and offsets.timestamp_ms is None


def pinned_configuration(logs: CheckpointLogs, batch: int) -> dict[str, str]:
    """Return the configuration that the batch's offset log holds."""
    offsets = logs.readable_offsets(batch)
    return offsets.conf if offsets is not None else {}
