"""Limit the calls in flight: to a fixed number, or to one determined from measurements.

The automatic limiter climbs the curve of throughput over calls in flight, as in H.-U. Heiss and R.
Wagner, "Adaptive Load Control in Transaction Processing Systems" (VLDB 1991, the method of
incremental steps), and backs off by multiplicative decrease when calls fail, as in D.-M. Chiu and
R. Jain, "Analysis of the Increase and Decrease Algorithms for Congestion Avoidance in Computer
Networks" (1989).

It searches for the knee of that curve: the smallest number in flight that gives nearly the best
throughput. Below it, each additional call in flight is free; above it, each one only waits longer
at the remote service. Latency alone is not a sufficient signal: it also grows while the local CPU
is busy, and in that case more calls in flight still help.
"""

import math
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Window:
    """Measurements over one period of time."""

    seconds: float  # its length
    calls: int  # calls that ended in it, successful or not
    latency_s: float  # the sum of their latencies
    failed: int  # of these, with a transient error or a timeout
    bound: int  # of these, ended while another row was ready: the limit held it back


class Limiter(Protocol):
    """Decides how many calls can be in flight."""

    @property
    def allowed(self) -> int:
        """Return the number of calls that may be in flight now."""
        ...

    @property
    def window_s(self) -> float:
        """Return the wanted length of the next window in seconds; infinity for no windows."""
        ...

    def observe(self, window: Window) -> None:
        """Process a window, and possibly change the number allowed."""
        ...


class Fixed:
    """Always allow the same number."""

    window_s = math.inf

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed

    def observe(self, window: Window) -> None:
        """Do nothing."""


#: Starting point: enough to learn from, and few enough to do no harm.
START = 16
#: Minimum, however bad the remote service is: something must notice that it has recovered.
FLOOR = 2
#: The knee is the smallest number that reaches this share of the best throughput measured.
ENOUGH = 0.9
#: A rung next to the knee with more than this share of the best throughput is measured `SURE` times
#: before it is trusted.
NEARLY = 0.8
SURE = 3
#: Weight of a new measurement of a number against the previous ones.
WEIGHT = 0.5
#: A throughput that changes by this share, twice, means that the remote service has changed.
MOVED = 0.3
#: A window with more than this share of failed calls halves the number.
ILL = 0.1
#: Good windows before a halved number may grow by a rung again.
MEND = 4
#: Measurements over less time, or over fewer latencies, are noise.
LATENCIES = 2
FIRST_S = 0.05
SETTLED_S = 0.15
#: Python's clocks count nanoseconds: a shorter window was not measured, and its rate may not be a
#: finite number.
TICK_S = 1e-9
#: Windows at the knee before a neighbour is measured again; doubles up to `REST_MOST`.
REST = 8
REST_MOST = 32


class Auto:
    """Find the knee on a ladder of numbers, each the square root of two times the previous one.

    It records the throughput of each rung, stays on the knee, and from time to time tries two rungs
    up and one rung down from the knee. Windows in which the limit did not hold back any call give
    no information about a rung and are skipped, as is the first window on a rung, whose calls began
    on another rung.
    """

    def __init__(self, cap: int, *, start: int = START) -> None:
        self._rungs = _ladder(min(FLOOR, cap), cap)
        self._top = self._ceiling = len(self._rungs) - 1
        self._at = max(at for at, number in enumerate(self._rungs) if number <= max(start, FLOOR))
        self._rates: dict[int, float] = {}  # calls per second, by rung
        self._times: dict[int, int] = {}  # number of measurements, by rung
        self._fresh = False
        self._strange = 0
        self._mending = 0
        self._rest, self._patience, self._upwards = REST, REST, False
        self._knee = self._at
        self._latency_s = 0.0

    @property
    def allowed(self) -> int:
        """Return the number of calls that may be in flight now."""
        return self._rungs[self._at]

    @property
    def window_s(self) -> float:
        """Return the length of the next window: several latencies, and longer once settled."""
        least = FIRST_S if len(self._rates) < 4 else SETTLED_S
        return max(least, LATENCIES * self._latency_s)

    def observe(self, window: Window) -> None:
        """Process a window, and possibly change the number allowed."""
        if not window.calls or window.seconds < TICK_S:
            return
        self._latency_s = window.latency_s / window.calls
        if window.failed > ILL * window.calls:
            self._give_way()
        elif self._fresh:
            self._fresh = False
        elif window.bound >= window.calls / 2:
            self._learn(window.calls / window.seconds)

    def _give_way(self) -> None:
        self._forget()
        self._ceiling = max(0, self._at - 2)
        self._mending = MEND
        self._go(self._ceiling)

    def _learn(self, rate: float) -> None:
        earlier_rate = self._rates.get(self._at)
        if earlier_rate is not None and abs(rate - earlier_rate) > MOVED * earlier_rate:
            self._strange += 1
            if self._strange < 2:
                return
            self._forget()
            earlier_rate = None
        self._strange = 0
        self._times[self._at] = self._times.get(self._at, 0) + 1
        self._rates[self._at] = (
            rate if earlier_rate is None else earlier_rate + WEIGHT * (rate - earlier_rate)
        )
        if self._ceiling < self._top:
            self._mending -= 1
            if self._mending <= 0:
                self._mending = MEND
                self._ceiling += 1
        self._go(self._next())

    def _forget(self) -> None:
        self._rates.clear()
        self._times.clear()
        self._rest = self._patience = REST

    def _next(self) -> int:
        best = max(self._rates.values())
        enough = ENOUGH * best
        knee = min(at for at, rate in self._rates.items() if rate >= enough)
        if knee != self._knee:
            self._knee, self._rest, self._patience = knee, REST, REST
        above, below = min(knee + 2, self._ceiling), max(knee - 1, 0)
        for step in (above, below):
            rate = self._rates.get(step)
            if rate is None or (rate > NEARLY * best and self._times[step] < SURE):
                return step
        self._rest -= 1
        if self._rest > 0:
            return knee
        self._patience = min(REST_MOST, self._patience * 2)
        self._rest = self._patience
        self._upwards = not self._upwards
        probed = above if self._upwards else below
        self._times[probed] = 1
        return probed

    def _go(self, at: int) -> None:
        self._fresh = at != self._at
        self._at = at


def _ladder(first: int, last: int) -> list[int]:
    """Return increasing integers from first to last, each about the square root of two apart."""
    steps = math.ceil(2 * math.log2(last / first)) if last > first else 0
    between = {round(last / 2 ** (step / 2)) for step in range(steps)}
    return sorted({first, last} | {limit for limit in between if limit > first})
