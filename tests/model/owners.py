"""The owner objects next to checkpoints that are not local, as drivers create and watch them.

How long a new owner waits is the product's own rule; the rest is written here as
`queries/runtime/checkpoints/owners.py` and `queries/jvm/Fence.java` do it. A former owner notices
its successor as late as it may.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from queries.domain.checkpoints import ownership
from queries.domain.checkpoints.ownership import Former

WATCH_S = 2.0
_HERE = "this installation"


@dataclass(frozen=True, slots=True)
class Taken:
    """One owner object."""

    epoch: int  # of the run
    host: str
    at: datetime  # by the storage's clock


class Owners:
    """The owner objects of every checkpoint, by their numbers from 1."""

    def __init__(self) -> None:
        self._taken: dict[str, list[Taken]] = {}

    def epoch(self, location: str) -> int:
        """Return the epoch that the newest object shows, 0 without any."""
        taken = self._taken.get(location)
        return taken[-1].epoch if taken else 0

    def take(
        self, location: str, epoch: int, host: str, *, ended: tuple[str, ...], now: datetime
    ) -> tuple[int, datetime]:
        """Create the next object; return its number, and when its owner may begin to write."""
        taken = self._taken.setdefault(location, [])
        taken.append(Taken(epoch, host, now))
        formers = [
            Former(_HERE, owner.host, WATCH_S, (now - successor.at).total_seconds())
            for owner, successor in pairwise(taken)
        ]
        wait_s = ownership.takeover_s(
            formers, installation=_HERE, ended={host, *ended}, watch_s=WATCH_S
        )
        return len(taken), now + timedelta(seconds=wait_s)

    def is_newest(self, location: str, number: int) -> bool:
        """Whether nobody has taken the checkpoint since."""
        return len(self._taken[location]) == number

    def has_halted(self, location: str, number: int, *, now: datetime) -> bool:
        """Whether an owner must have noticed its successor, and halted its JVM."""
        later = self._taken[location][number:]
        latest = timedelta(seconds=ownership.fence_s(WATCH_S))
        return bool(later) and later[0].at + latest <= now
