"""When a call may begin, and when it may be tried again."""

import random
from collections.abc import Callable
from dataclasses import dataclass


class Pace:
    """Spaces calls evenly: no more than `per_second`, with a burst of at most a tenth of that.

    The generic cell rate algorithm (ITU-T I.371): one number, the moment the next call would be
    due at an even pace, and how far ahead of it a call may come.
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1.0 / per_second
        self._ahead = max(0.0, 0.1 - self._interval)
        self._due = 0.0

    def reserve(self, now: float) -> float:
        """Take the next place; return how long to wait for it, in seconds (0.0: at once)."""
        due = max(self._due, now)
        self._due = due + self._interval
        return max(0.0, due - self._ahead - now)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before another try: exponential, with full jitter.

    Full jitter after M. Brooker, "Exponential Backoff and Jitter" (2015): many callers that
    failed together do not come back together.
    """

    first_s: float = 0.05
    most_s: float = 5.0
    chance: Callable[[], float] = random.random

    def delay(self, tried: int) -> float:
        """Return seconds to wait after `tried` failed tries (1 and above)."""
        return self.chance() * min(self.most_s, self.first_s * 2.0 ** min(tried - 1, 32))
