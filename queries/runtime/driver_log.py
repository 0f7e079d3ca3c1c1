"""Keep a driver's logs small, and sacrifice them first when the disk is full."""

import os
import shutil
from pathlib import Path

from headgate_ground.files import KEEP_FREE, KEEP_LOG, free_bytes
from queries.domain.protocol import DRIVER_LOG

LOG_LIMIT = 64 * 1024 * 1024  # bytes of driver.log; beyond that it is copied and emptied


def keep_small(directory: Path) -> None:
    """Empty a driver.log that is too long, after copying it if there is room.

    The file is open for appending, so it is emptied in place. Raises OSError if that fails.
    """
    short = free_bytes(directory) < KEEP_FREE
    if short:
        for rotated in directory.glob("*.log.*"):  # including Spark's own
            rotated.unlink(missing_ok=True)
    log = directory / DRIVER_LOG
    try:
        if log.stat().st_size <= (KEEP_LOG if short else LOG_LIMIT):
            return
        try:
            if not short:
                shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        finally:
            os.truncate(log, 0)
    except FileNotFoundError:
        return
