"""Limit the time and size of a whole download: fetched code, or packages.

The time limit ends a slow transfer, and the size limit ends an endless one. Both limits are
settings of the installation, and the error message names the one that was reached.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

#: Seconds between two checks of the folders; checking takes at most a tenth of the time.
LOOK_EVERY_S = 0.5
_SHARE = 10


class LimitReached(Exception):
    """The error that a download took too long or became too large; its message is a sentence."""


@dataclass(slots=True)
class Download:
    """The limits of one download, which may consist of several commands."""

    folders: tuple[Path, ...]  # it writes to these
    ends: float  # monotonic time
    before: int  # bytes in the folders at the start
    limit_text: str  # its limit, for messages

    @classmethod
    def into(cls, *folders: Path, seconds: float | None = None) -> "Download":
        """Return a download that starts now; a limit of None means the one in the settings."""
        limit = settings.DOWNLOAD_S if seconds is None else seconds
        limit_text = f"{limit:g} s and was stopped" + (
            " (HEADGATE_DOWNLOAD_S)" if seconds is None else ""
        )
        return cls(folders, time.monotonic() + limit, _size(folders), limit_text)

    def pause(self) -> float:
        """Return the seconds until the next check; raise `LimitReached` if a limit is exceeded."""
        began = time.monotonic()
        self.check()
        now = time.monotonic()
        return max(0.0, min(max(LOOK_EVERY_S, (now - began) * _SHARE), self.ends - now))

    def check(self) -> None:
        """Raise `LimitReached` if a limit is exceeded."""
        if time.monotonic() >= self.ends:
            raise LimitReached(f"It took longer than {self.limit_text}.")
        if _size(self.folders) - self.before > settings.DOWNLOAD_MB * 2**20:
            raise LimitReached(
                f"It downloaded more than {settings.DOWNLOAD_MB:g} MB and was stopped "
                "(HEADGATE_DOWNLOAD_MB)."
            )


def _size(folders: tuple[Path, ...]) -> int:
    """Return the total size of the files in these folders, in bytes; missing ones are skipped."""
    total, left = 0, [str(folder) for folder in folders]
    while left:
        with suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total
