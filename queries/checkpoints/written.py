"""Read from a checkpoint which version of Spark wrote it, and in which formats."""

from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.operators import operator_names
from queries.domain.checkpoints.logs import UnreadableLog
from queries.domain.sparks.upgrade import Written


def written(logs: CheckpointLogs) -> Written | None:
    """Return what the newest batch of a checkpoint says; None if there is none, or it is damaged.

    `logs` may be a mirror of a checkpoint on a storage: it has the operators' metadata too.
    """
    newest = max(logs.begun(), default=None)
    offsets = logs.readable_offsets(newest) if newest is not None else None
    if offsets is None:
        return None
    committed = logs.last_commit()
    try:
        commit = logs.commit(committed) if committed is not None else None
    except UnreadableLog:
        return None
    return Written(
        offsets.version,
        commit.version if commit is not None else "v1",
        offsets.conf,
        operator_names(logs),
    )
