"""A row on its way, what became of it, and the rules by which it is called."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headgate_async.pacing import Backoff


class Entry(NamedTuple):
    """A row on its way."""

    seq: int  # its place in the source's order
    key: Hashable  # None: it has no order to keep
    row: Any
    behind: float  # when it began to wait for its key, 0.0 where it did not (monotonic seconds)
    tried: int  # tries that failed


class Outcome(NamedTuple):
    """What became of a row. Exactly one is given for each row that was admitted."""

    row: Any
    result: Any  # what the function returned; None where it failed
    error: BaseException | None
    latency_ms: float  # of the last try
    waited_ms: float  # for its key


@dataclass(frozen=True, slots=True)
class Rules:
    """How calls are made. Times are in seconds."""

    timeout_s: float = 30.0
    retries: int = 3
    transient: Callable[[BaseException], bool] = lambda error: False
    broken: Callable[[BaseException], bool] = lambda error: False  # the client is of no more use
    backoff: Backoff = field(default_factory=Backoff)
    dead_letters: bool = False  # a row that fails for good goes on; else everything fails
    ordered: bool = False  # outcomes are given in the order of the source
    give_at: int = 512  # outcomes in a list


class NoClients:
    """For functions that need no client."""

    current: Any = None

    async def get(self) -> Any:
        """Return None."""
        return None

    def broke(self, client: Any) -> None:
        """Do nothing."""
