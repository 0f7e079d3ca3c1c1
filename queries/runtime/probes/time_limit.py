"""End a probe whose time is up, without blaming it for a busy host."""

import threading
import time
from collections.abc import Callable

#: Seconds between two looks, at most.
_LOOK_S = 1.0


class TimeLimit:
    """A time limit that starts again whenever something has moved, up to a maximum."""

    def __init__(
        self,
        limit_s: float,
        *,
        most_s: float,
        moved: Callable[[], bool],
        over: Callable[[str], None],
    ) -> None:
        """Begin now. `moved` is asked every second.

        `over` is called once, from another thread, with what has happened: "not finished within…".
        """
        self._limit_s, self._most_s = limit_s, max(limit_s, most_s)
        self._moved, self._over = moved, over
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="time-limit", daemon=True).start()

    def end(self) -> None:
        """Lift the limit."""
        self._ended.set()

    def _watch(self) -> None:
        began = since = time.monotonic()
        while not self._ended.wait(min(_LOOK_S, self._limit_s)):
            if self._moved():
                since = time.monotonic()
            now = time.monotonic()
            if now - began >= self._most_s:
                self._over(f"Not finished within {self._most_s:.0f} s")
                return
            if now - since >= self._limit_s:
                self._over(f"No progress for {self._limit_s:.0f} s")
                return
