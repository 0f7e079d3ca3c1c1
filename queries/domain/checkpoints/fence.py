"""How long the fence of checkpoints that are not local takes, in seconds.

A driver asks its store every few seconds whether a later start owns its checkpoint, and ends if so.
If it gets no answer, it does not know; then a start elsewhere must have waited long enough, and
the driver must have ended before.
"""

#: Longest time that a question to the store may take.
CALL_S = 3.0
#: Longest pause of a driver's JVM that a takeover allows for: a full garbage collection, a busy
#: host.
PAUSE_S = 15.0
#: How much earlier than a takeover the old driver ends: one question and one interval.
_MARGIN_S = 5.0


def fence_s(watch_s: float) -> float:
    """Return how long a takeover must wait for the old driver, for an interval between questions.

    It need not wait if the death of the old driver is proven on its own host.
    """
    return 3 * watch_s + PAUSE_S


def silence_s(watch_s: float) -> float:
    """Return after how much silence of both the store and the control plane a driver ends."""
    return fence_s(watch_s) - _MARGIN_S
