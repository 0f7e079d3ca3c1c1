"""Define rows being processed, their outcomes, counts and errors, and the rules for calls."""

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple


class AsyncMapError(Exception):
    """The base class of all errors that `headgate_async` itself raises."""


class BadArgument(AsyncMapError, ValueError):
    """An argument of `map_async` is invalid."""


class CallTimedOut(AsyncMapError, TimeoutError):
    """A call did not return within its timeout and was cancelled."""


class CallStuck(AsyncMapError, TimeoutError):
    """A call continued after its cancellation, so its key's order can no longer be guaranteed."""


class BadResult(AsyncMapError, TypeError):
    """The function returned a value that is not a row of the schema."""


@dataclass(slots=True)
class Counts:
    """One task's sums over a period; they are transferred in the order of the fields."""

    calls: float = 0  # attempts that ended, successful or not
    retries: float = 0  # attempts after the first
    errors: float = 0  # failed attempts: transient errors, timeouts, and final errors
    timeouts: float = 0  # of these, timeouts
    dead_letters: float = 0  # rows given up
    busy_ms: float = 0  # time that calls were in flight, added over all calls
    wall_ms: float = 0  # elapsed time
    cpu_ms: float = 0  # CPU time of this Python worker, over all its threads
    allowed: float = 0  # the limit, summed over calls
    held_by_limit: float = 0  # calls that ended while another row was ready
    held_by_keys: float = 0  # … while every held row waited for a call with its own key
    held_by_source: float = 0  # … while there was no other row
    held_by_pace: float = 0  # calls that had to wait for the limit of calls per second
    keys: float = 0  # distinct keys held, summed over calls
    tasks: float = 0  # tasks that started
    opened: float = 0  # clients opened

    def as_list(self) -> list[float]:
        """Return the sums in the order of the fields."""
        return [float(getattr(self, field.name)) for field in fields(self)]


NAMES = tuple(one.name for one in fields(Counts))


class Entry(NamedTuple):
    """A row being processed."""

    seq: int  # its position in the source's order
    key: Hashable  # None: it has no order to keep
    row: Any
    behind: float  # when it began to wait for its key, 0.0 if it did not (monotonic seconds)
    tried: int  # failed attempts


class Outcome(NamedTuple):
    """The outcome of a row; each admitted row gets exactly one outcome."""

    row: Any
    result: Any  # what the function returned; None if it failed
    error: BaseException | None
    latency_ms: float  # of the last attempt
    waited_ms: float  # waiting time for its key


@dataclass(frozen=True, slots=True)
class Backoff:
    """The time to wait before another attempt: exponential, with full jitter.

    Full jitter follows M. Brooker, "Exponential Backoff and Jitter" (2015): callers that failed at
    the same time do not retry at the same time.
    """

    first_s: float = 0.05
    most_s: float = 5.0
    chance: Callable[[], float] = random.random

    def delay(self, tried: int) -> float:
        """Return how many seconds to wait after `tried` failed attempts (at least 1)."""
        return self.chance() * min(self.most_s, self.first_s * 2.0 ** min(tried - 1, 32))


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for making calls; times are in seconds."""

    timeout_s: float = 30.0
    retries: int = 3
    transient: Callable[[BaseException], bool] = lambda error: False
    broken: Callable[[BaseException], bool] = lambda error: False  # the client is no longer usable
    backoff: Backoff = field(default_factory=Backoff)
    dead_letters: bool = False  # a row that fails for good is passed on; otherwise everything fails
    ordered: bool = False  # outcomes are returned in the order of the source
    give_at: int = 512  # outcomes per list


class NoClients:
    """The clients of functions that do not need a client."""

    current: Any = None

    async def get(self) -> Any:
        """Return None."""
        return None

    def broke(self, client: Any) -> None:
        """Do nothing."""


class Pace:
    """Space calls evenly: at most `per_second`, with a burst of at most a tenth of that.

    This is the generic cell rate algorithm (ITU-T I.371): it stores only the moment at which the
    next call would be due at an even pace, and a call can be at most a given time ahead of it.
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1.0 / per_second
        self._ahead = max(0.0, 0.1 - self._interval)
        self._due = 0.0

    def reserve(self, now: float) -> float:
        """Reserve the next slot; return the seconds to wait for it (0.0 means no wait)."""
        due = max(self._due, now)
        self._due = due + self._interval
        return max(0.0, due - self._ahead - now)
