"""Run our supervisord: on a full disk, its logs are cut, and a log can never end it.

supervisord writes its own log and those of its programs. Unmodified, it would crash on a log line
that it could not write, and take every program down with it.
"""

import os
import time
from contextlib import suppress
from typing import Any

from supervisor import loggers, supervisord

from headgate_ground.files import KEEP_FREE, KEEP_LOG, free_bytes, use_forgiving_output

LOOK_EVERY_S = 1.0


class YieldingLog(loggers.RotatingFileHandler):  # type: ignore[misc]
    """A rotated log that is cut, and then no longer written, while the disk is nearly full."""

    stream: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._withheld = 0  # lines dropped since the last written one
        self._looked_at = -LOOK_EVERY_S  # monotonic
        self._has_room = True
        super().__init__(*args, **kwargs)

    def emit(self, record: Any) -> None:
        """Write a line if there is space, and the number of lines dropped before; never fail."""
        if not self._room():
            self._withheld += 1
            return
        try:
            if self.stream.closed:
                self.stream = open(self.baseFilename, "ab")  # noqa: SIM115
            if self._withheld:
                missing = "1 line was" if self._withheld == 1 else f"{self._withheld} lines were"
                self._withheld = 0
                self.stream.write(f"({missing} omitted because the disk was full)\n".encode())
            loggers.FileHandler.emit(self, record)
            if not self.stream.closed:  # by `handleError`
                self.doRollover()
        except (OSError, ValueError):
            self._withheld += 1

    def handleError(self) -> None:
        """Count a line that could not be written; supervisord would crash if it reported this."""
        self._withheld += 1
        with suppress(OSError):
            self.stream.close()  # its buffer is discarded

    def close(self) -> None:
        """Close the file, even if its buffer does not fit on the disk."""
        with suppress(OSError):
            super().close()

    def _room(self) -> bool:
        """Return whether lines can be written; if there is little space, cut logs to make some."""
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
    """Run supervisord."""
    use_forgiving_output()
    loggers.RotatingFileHandler = YieldingLog
    supervisord.main()


if __name__ == "__main__":
    main()
