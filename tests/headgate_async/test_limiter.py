"""The automatic limiter against simulated remotes: where it goes, and how much is lost there."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate_async.limiter import Auto, Fixed, Window


@dataclass(frozen=True)
class Queueing:
    """A closed system: `servers` that each need `service_s`, behind a wire, before one CPU.

    With n calls in flight no more than n / (wire + service) can end in a second, no more than the
    servers bear and no more than this side's CPU does. The three meet softly, as they do where
    times vary (a p-norm of their costs).
    """

    wire_s: float
    service_s: float
    servers: int = 10_000
    cpu_s: float = 1e-9  # of this side, for a call

    def rate(self, n: int) -> float:
        costs = ((self.wire_s + self.service_s) / n, self.service_s / self.servers, self.cpu_s)
        return 1.0 / float(sum(cost**5 for cost in costs) ** (1 / 5))


class Drive:
    """Feeds a limiter with the windows that a remote would make, noise included."""

    def __init__(self, limiter: Auto, *, noise: float = 0.08, seed: int = 7) -> None:
        self.limiter = limiter
        self._noise = noise
        self._random = random.Random(seed)
        self.seen: list[int] = []

    def seconds(
        self,
        seconds: float,
        rate: Callable[[int], float],
        *,
        failed: float = 0.0,
        bound: float = 1.0,
    ) -> float:
        """Let time pass; return the mean rate of calls over it."""
        left, calls = seconds, 0.0
        while left > 0:
            n, span = self.limiter.allowed, self.limiter.window_s
            true = rate(n)
            measured = true * (1 + self._random.uniform(-self._noise, self._noise))
            ended = max(1, int(measured * span))
            self.limiter.observe(
                Window(span, ended, ended * n / true, int(failed * ended), int(bound * ended))
            )
            calls += true * span
            left -= span
            self.seen.append(n)
        return calls / (seconds - left)


REMOTES = {
    "2 ms, endless capacity": Queueing(0.0, 0.002),
    "2 ms, this side's CPU ends at 30,000 a second": Queueing(0.0, 0.002, cpu_s=1 / 30_000),
    "20 ms, this side's CPU ends at 30,000 a second": Queueing(0.0, 0.020, cpu_s=1 / 30_000),
    "20 servers of 5 ms": Queueing(0.001, 0.005, servers=20),
    "64 servers of 2 ms": Queueing(0.0005, 0.002, servers=64),
    "3 servers of 50 ms": Queueing(0.002, 0.050, servers=3),
    "one server of 10 ms": Queueing(0.0, 0.010, servers=1),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", REMOTES)
def test_it_comes_within_15_percent_of_the_best_fixed_number(name: str, seed: int) -> None:
    remote, cap = REMOTES[name], 256
    drive = Drive(Auto(cap), seed=seed)
    drive.seconds(10, remote.rate)
    reached = drive.seconds(20, remote.rate)
    best = max(remote.rate(n) for n in (1, 2, 4, 8, 16, 32, 64, 128, 256))
    assert reached >= 0.85 * best, (drive.limiter.allowed, reached, best)
    assert max(drive.seen) <= cap


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("name", "most"),
    [("20 servers of 5 ms", 70), ("3 servers of 50 ms", 24), ("one server of 10 ms", 16)],
)
def test_it_does_not_pile_up_calls_at_a_remote_that_is_full(
    name: str, most: int, seed: int
) -> None:
    drive = Drive(Auto(256), seed=seed)
    drive.seconds(90, REMOTES[name].rate)
    drive.seen.clear()
    drive.seconds(60, REMOTES[name].rate)
    assert sum(drive.seen) / len(drive.seen) <= most, drive.seen


def test_it_gives_way_when_calls_fail_and_comes_back_when_they_do_not() -> None:
    remote = REMOTES["2 ms, endless capacity"]
    drive = Drive(Auto(256))
    drive.seconds(10, remote.rate)
    before = drive.limiter.allowed
    drive.seconds(2, remote.rate, failed=0.5)
    assert drive.limiter.allowed == 2
    drive.seconds(20, remote.rate)
    assert drive.limiter.allowed >= 0.8 * before


def test_it_gives_way_when_the_remote_loses_most_of_its_servers() -> None:
    drive = Drive(Auto(256))
    drive.seconds(15, Queueing(0.0005, 0.002, servers=128).rate)
    assert drive.limiter.allowed >= 90
    drive.seconds(60, Queueing(0.0005, 0.002, servers=6).rate)
    assert drive.limiter.allowed <= 40


def test_a_few_failures_do_not_frighten_it() -> None:
    remote = REMOTES["2 ms, endless capacity"]
    drive = Drive(Auto(256))
    drive.seconds(20, remote.rate, failed=0.05)
    assert drive.limiter.allowed >= 200


def test_it_learns_nothing_where_the_limit_holds_nothing_back() -> None:
    drive = Drive(Auto(256))
    drive.seconds(20, lambda n: 1000.0, bound=0.1)
    assert set(drive.seen) == {16}


#: So short that the rate over it overflows a float.
NOTHING = (5e-324, 10_000, 0.0, 0.0, 1.0)


@settings(deadline=None)
@example(cap=16, windows=[NOTHING] * 30)
@given(
    cap=st.integers(1, 300),
    windows=st.lists(
        st.tuples(
            st.floats(0, 10),
            st.integers(0, 10_000),
            st.floats(0, 1000),
            st.floats(0, 1),
            st.floats(0, 1),
        ),
        max_size=60,
    ),
)
def test_it_never_leaves_its_bounds_whatever_is_measured(
    cap: int, windows: list[tuple[float, int, float, float, float]]
) -> None:
    limiter = Auto(cap)
    for seconds, calls, latency, failed, bound in windows:
        limiter.observe(Window(seconds, calls, latency, int(failed * calls), int(bound * calls)))
        assert 1 <= limiter.allowed <= cap
        assert limiter.window_s > 0


def test_a_fixed_number_stays() -> None:
    limiter = Fixed(32)
    limiter.observe(Window(1.0, 100, 1.0, 100, 100))
    assert limiter.allowed == 32
