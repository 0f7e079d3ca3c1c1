"""Find which version of Spark wrote a query's checkpoint, and in which formats."""

from contextlib import suppress

from queries.checkpoints.logs import CheckpointLogs, NotLocal
from queries.checkpoints.written import written
from queries.domain.checkpoints.lock_files import local_path
from queries.domain.checkpoints.logs import UnreadableLog
from queries.domain.sparks.upgrade import Written
from queries.models.definitions import Query
from queries.selectors.hosts import logs_at, mirror_of


def written_of(query: Query) -> Written | None:
    """Return what wrote a query's checkpoint; None if nothing has, or it is unknown from here.

    A checkpoint on a storage is known as it was last read; one on another host is not.
    """
    checkpoint = query.checkpoints.filter(retired_at=None).first()
    if checkpoint is None:
        return None
    location = checkpoint.location
    with suppress(NotLocal, UnreadableLog, OSError):
        if local_path(location) is not None:
            return written(logs_at(location, host=query.application.host))
        mirror = mirror_of(location)
        if mirror.about().read_at is not None:
            return written(CheckpointLogs(mirror.checkpoint))
    return None
