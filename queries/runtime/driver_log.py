"""Keep a driver's logs small, and let them be the first to give way where the disk is full."""

import os
import shutil
from pathlib import Path

from queries.domain.protocol import DRIVER_LOG
from queries.files import KEEP_FREE, KEEP_LOG, free_bytes

LOG_LIMIT = 64 * 1024 * 1024  # bytes of driver.log; then it is emptied, after a copy


def keep_small(directory: Path) -> None:
    """Empty a driver.log that is too long, after a copy where there is room for one.

    It is open for appending, so it is emptied in place. Raises OSError where it cannot be.
    """
    short = free_bytes(directory) < KEEP_FREE
    if short:
        for rotated in directory.glob("*.log.*"):  # Spark's own too
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
