"""Raise the epoch where a database was restored and checkpoints have higher ones."""

import json
import logging
from pathlib import Path

from queries.domain.checkpoints.lock_files import earlier_owner_file, local_path, owner_file
from queries.files import read_file
from queries.models.installation import Installation

logger = logging.getLogger(__name__)


def outrun_owner(location: str) -> None:
    """Draw above the epoch in a local checkpoint's owner file from now on, if that is ours.

    A checkpoint elsewhere is left alone: its next attempts are refused until enough epochs
    have been drawn.
    """
    if local_path(location) is None:
        return
    try:
        places = (owner_file(location), earlier_owner_file(location))
        text = next((text for place in places if (text := read_file(Path(place)))), "")
        owner = json.loads(text)
        installation, epoch = str(owner["installation"]), int(owner["epoch"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("the owner file of %s cannot be read: %s", location, error)
        return
    if installation == str(Installation.get().uuid):
        Installation.raise_epoch(epoch)
