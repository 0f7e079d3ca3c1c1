"""How long a whole download may take, and how much it may bring: fetched code, or packages.

What a server sends slowly is ended by the time, what it sends without end by the size. Both are
the installation's settings, and are named where they end something.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

#: Seconds between two looks at the folders; at most a tenth of the time goes into looking.
LOOK_EVERY_S = 0.5
_SHARE = 10


class LimitReached(Exception):
    """A download has taken too long or brought too much; the message is a sentence."""


@dataclass(slots=True)
class Download:
    """One download, of several commands: what it may still do."""

    folders: tuple[Path, ...]  # that it writes to
    ends: float  # by the monotonic clock
    before: int  # bytes that the folders held

    @classmethod
    def into(cls, *folders: Path) -> "Download":
        """Return a download that begins now."""
        return cls(folders, time.monotonic() + settings.DOWNLOAD_S, _size(folders))

    def pause(self) -> float:
        """Return the seconds up to the next look; raise `LimitReached` beyond a limit."""
        began = time.monotonic()
        self.check()
        now = time.monotonic()
        return max(0.0, min(max(LOOK_EVERY_S, (now - began) * _SHARE), self.ends - now))

    def check(self) -> None:
        """Raise `LimitReached` beyond a limit."""
        if time.monotonic() >= self.ends:
            raise LimitReached(
                f"It took longer than {settings.DOWNLOAD_S:g} s and was ended "
                "(HEADGATE_DOWNLOAD_S)."
            )
        if _size(self.folders) - self.before > settings.DOWNLOAD_MB * 2**20:
            raise LimitReached(
                f"It brought more than {settings.DOWNLOAD_MB:g} MB and was ended "
                "(HEADGATE_DOWNLOAD_MB)."
            )


def _size(folders: tuple[Path, ...]) -> int:
    """Return the bytes of all files below folders, as far as they are there."""
    found, left = 0, [str(one) for one in folders]
    while left:
        with suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        found += entry.stat(follow_symlinks=False).st_size
    return found
