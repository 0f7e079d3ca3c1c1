"""Raise the epoch after a database restore, if checkpoints have higher ones."""

import json
import logging
from pathlib import Path

from headgate_ground.files import read_file
from queries.domain.checkpoints.lock_files import local_path, owner_file
from queries.models.installation import Installation

logger = logging.getLogger(__name__)


def outrun_owner(location: str) -> None:
    """Allocate future epochs above the one in a local checkpoint's owner file, if we own it.

    A checkpoint that is not local is left alone: its next attempts are refused until enough epochs
    have been allocated.
    """
    if local_path(location) is None:
        return
    try:
        owner = json.loads(read_file(Path(owner_file(location))) or "")
        installation, epoch = str(owner["installation"]), int(owner["epoch"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("could not read the owner file of %s: %s", location, error)
        return
    if installation == str(Installation.get().uuid):
        Installation.raise_epoch(epoch)
