"""How long the fence of checkpoints that are not local takes, in seconds.

A driver asks its store every few seconds whether a later start owns its checkpoint, and ends if so.
If it gets no answer, it does not know; then a start elsewhere must have waited long enough, and
the driver must have ended before.
"""

from collections.abc import Iterable
from dataclasses import dataclass

#: Longest time that a question to the store may take.
CALL_S = 3.0
#: Longest pause of a driver's JVM that a takeover allows for: a full garbage collection, a busy
#: host.
PAUSE_S = 15.0
#: Longest interval between two questions (HEADGATE_FENCE_WATCH_S).
LONGEST_WATCH_S = 60.0
#: How much earlier than a takeover the old driver ends: one question and one interval.
_MARGIN_S = 5.0


#: Stores tell times in whole seconds, so two of them can be closer together than they look.
_ROUNDED_S = 1.0


@dataclass(frozen=True, slots=True)
class Former:
    """An owner of a checkpoint before this start, as far as its owner object tells."""

    installation: str  # "" if the object cannot be read
    host: str
    watch_s: float  # between its driver's questions; 0 if unknown
    succeeded_s: float  # from the next owner's object until this start's own, by the store's clock


def takeover_s(formers: Iterable[Former], *, installation: str, host: str, watch_s: float) -> float:
    """Return how long a start waits after it has created its own owner object; 0 if at once.

    It waits for former owners of another installation or host, whose drivers may not have noticed
    the next owner yet. A former driver of this installation on this host is dead: another one is
    only started after its exit has been recorded. A longer interval of either side counts.
    """
    waits = [
        fence_s(max(watch_s, min(former.watch_s, LONGEST_WATCH_S)))
        - max(0.0, former.succeeded_s - _ROUNDED_S)
        for former in formers
        if (former.installation, former.host) != (installation, host)
    ]
    return max([0.0, *waits])


def fence_s(watch_s: float) -> float:
    """Return how long a takeover must wait for the old driver, for an interval between questions.

    It need not wait if the death of the old driver is proven on its own host.
    """
    return 3 * watch_s + PAUSE_S


def silence_s(watch_s: float) -> float:
    """Return after how much silence of both the store and the control plane a driver ends."""
    return fence_s(watch_s) - _MARGIN_S
