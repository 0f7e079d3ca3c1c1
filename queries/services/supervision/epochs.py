"""Raise the epoch after a database restore, if checkpoints have higher ones."""

import logging
from pathlib import Path

import orjson

from headgate_ground.files import read_file
from queries.domain.checkpoints.lock_files import local_path, owner_file
from queries.models.installation import Installation

logger = logging.getLogger(__name__)

#: No installation allocates as many: a greater number was not written by Headgate, and would leave
#: too few for later starts.
HIGHEST_EPOCH = 2**53
MOST_OF_OWNER = 10_000  # characters; Headgate writes about 200


def outrun_owner(location: str, reported: int | None) -> None:
    """Allocate future epochs above the one in a checkpoint's owner file, if that is ours.

    A local file is read here. For any other location, `reported` is the epoch that the refused
    driver read there; it refuses an owner of another installation for another reason. None if a
    driver of an earlier release did not report it: the next attempts are refused until enough
    epochs have been allocated.
    """
    epoch = reported if local_path(location) is None else _owners(location)
    if epoch is None:
        return
    if epoch > HIGHEST_EPOCH:
        logger.warning("ignoring epoch %s in the owner file of %s: too high", epoch, location)
        return
    Installation.raise_epoch(epoch)


def _owners(location: str) -> int | None:
    """Return the epoch of the owner of a local checkpoint; None if it is unknown or not ours."""
    path = Path(owner_file(location))
    try:
        owner = orjson.loads(read_file(path, MOST_OF_OWNER, within=path.parent) or "")
        installation, epoch = str(owner["installation"]), int(owner["epoch"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        logger.warning("could not read the owner file of %s: %s", location, error)
        return None
    return epoch if installation == str(Installation.get().uuid) else None
