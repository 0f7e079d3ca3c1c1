"""supervisord as we run it: its logs give way to a full disk, and none of them can end it.

supervisord writes its own log and those of its programs. Unchanged, it dies of a log line that
finds no room, and every program with it.
"""

import os
import time
from contextlib import suppress
from typing import Any

from supervisor import loggers, supervisord

from queries.files import KEEP_FREE, KEEP_LOG, free_bytes, use_forgiving_output

LOOK_EVERY_S = 1.0


class YieldingLog(loggers.RotatingFileHandler):  # type: ignore[misc]
    """A rotated log that is cut, and then silent, while the disk is nearly full."""

    stream: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._withheld = 0  # lines that were not written since the last that was
        self._looked_at = -LOOK_EVERY_S  # monotonic
        self._has_room = True
        super().__init__(*args, **kwargs)

    def emit(self, record: Any) -> None:
        """Write a line where there is room for it, and how many there was none for; never fail."""
        if not self._room():
            self._withheld += 1
            return
        try:
            if self.stream.closed:
                self.stream = open(self.baseFilename, "ab")  # noqa: SIM115
            if self._withheld:
                missing = "1 line was" if self._withheld == 1 else f"{self._withheld} lines were"
                self._withheld = 0
                self.stream.write(f"({missing} left out: the disk was full)\n".encode())
            loggers.FileHandler.emit(self, record)
            if not self.stream.closed:  # by `handleError`
                self.doRollover()
        except (OSError, ValueError):
            self._withheld += 1

    def handleError(self) -> None:
        """Count a line that could not be written; supervisord's own would die of saying so."""
        self._withheld += 1
        with suppress(OSError):
            self.stream.close()  # what it still buffers is given up

    def close(self) -> None:
        """Close the file; what it still buffers may find no room."""
        with suppress(OSError):
            super().close()

    def _room(self) -> bool:
        """Tell whether lines may be written; make room by giving up logs where it is short."""
        if time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return self._has_room
        self._looked_at = time.monotonic()
        self._has_room = self._free() >= KEEP_FREE
        if not self._has_room:
            self._give_way()
        return self._has_room

    def _free(self) -> int:
        return free_bytes(os.path.dirname(self.baseFilename))

    def _give_way(self) -> None:
        with suppress(OSError):
            for number in range(1, self.backupCount + 1):
                with suppress(FileNotFoundError):
                    os.remove(f"{self.baseFilename}.{number}")
            if os.path.getsize(self.baseFilename) > KEEP_LOG:
                os.truncate(self.baseFilename, 0)  # it is open for appending


def main() -> None:
    """Be supervisord."""
    use_forgiving_output()
    loggers.RotatingFileHandler = YieldingLog
    supervisord.main()


if __name__ == "__main__":
    main()
