"""A worker's ticks: late rather than lost, none held up by another thread's, all end with it."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from django.db import DatabaseError
from hypothesis import given
from hypothesis import strategies as st

from controlplane import signs_of_life
from controlplane.ticks import Tick
from listeners.loops import timers
from listeners.loops.backlogs import current
from listeners.loops.timers import LEAD_LOOK_S, TickThread, Timers
from tests.conftest_redis import ValkeyServer, valkey

__all__ = ["valkey"]

LIMIT_S = 60


class Clock:
    """A clock that only tests turn, and what each tick does by it."""

    def __init__(self) -> None:
        self.s = 0.0
        self.took: dict[str, float] = {}
        self.came: list[tuple[str, float]] = []

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.s, UTC)

    def run(self, name: str) -> None:
        self.came.append((name, self.s))
        self.s += self.took.get(name, 0.0)

    def thread(self, *ticks: Tick, leads: Any = lambda: True) -> TickThread:
        return TickThread(ticks, leads, clock=lambda: self.s, now=self.now)

    def turn(self, thread: TickThread, until: float) -> None:
        """Let the thread step, and wait as long as it says, until this time."""
        while self.s < until:
            wait = thread.step()
            self.s = min(until, self.s + wait) if wait else self.s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(timers, "import_string", lambda path: lambda: found.run(path))
    monkeypatch.setattr(timers, "close_old_connections", lambda: None)
    return found


def test_a_tick_runs_an_interval_after_its_last_end(clock: Clock) -> None:
    clock.took["look"] = 3.0
    clock.turn(clock.thread(Tick("look", 5.0)), until=25)
    assert clock.came == [("look", 5.0), ("look", 13.0), ("look", 21.0)]


def test_a_tick_whose_time_has_passed_runs_late_and_is_not_lost(clock: Clock) -> None:
    thread = clock.thread(Tick("look", 5.0), Tick("slow", 60.0))
    clock.took["slow"] = 780.0  # thirteen minutes
    clock.turn(thread, until=850)
    before = [at for name, at in clock.came if name == "look" and at < 65]
    assert before == [5.0 * n for n in range(1, 13)]
    assert clock.came[12:15] == [("slow", 60.0), ("look", 840.0), ("look", 845.0)]


@pytest.mark.django_db
def test_an_error_is_shown_and_the_tick_runs_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def rotten(path: str) -> Any:
        def work() -> None:
            clock.run(path)
            if path == "rotten":
                raise KeyError("a broken row")

        return work

    monkeypatch.setattr(timers, "import_string", rotten)
    thread = clock.thread(Tick("rotten", 5.0), Tick("other", 5.0))
    clock.turn(thread, until=11)
    assert clock.came == [("rotten", 5.0), ("other", 5.0), ("rotten", 10.0), ("other", 10.0)]
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 1
    assert [(one.loop, one.about, one.times) for one in current(datetime.now(UTC))] == [
        ("ticks", "rotten", 1)  # the second is written ten seconds later
    ]
    assert not thread.runs["rotten"].is_running


def test_the_times_of_a_run_are_known_while_it_runs_and_then(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    thread = clock.thread(Tick("look", 5.0))
    monkeypatch.setattr(timers, "import_string", lambda _: lambda: seen.append(thread.runs["look"]))
    clock.turn(thread, until=11)
    first, second = seen
    assert (first.is_running, first.ended) == (True, None)
    assert (second.is_running, second.ended) == (True, datetime.fromtimestamp(5, UTC))
    assert thread.runs["look"].ended == datetime.fromtimestamp(10, UTC)


# --- the leader's ----------------------------------------------------------------------------
def test_a_worker_that_does_not_lead_runs_none_and_takes_over_within_seconds(clock: Clock) -> None:
    leading = [False]
    ticks = (Tick("often", 5.0, by_leader=True), Tick("hourly", 3600.0, by_leader=True))
    thread = clock.thread(*ticks, leads=lambda: leading[0])
    clock.turn(thread, until=5000)
    assert clock.came == []
    leading[0] = True
    clock.turn(thread, until=5000 + LEAD_LOOK_S + 1)
    assert {name for name, _ in clock.came} == {"often", "hourly"}


@given(kills=st.lists(st.tuples(st.integers(1, 200), st.booleans()), max_size=8))
def test_whoever_leads_the_ticks_go_on(kills: list[tuple[int, bool]]) -> None:
    """Two workers, of which the other leads from time to time; at random, both or one alone."""
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(timers, "import_string", lambda path: lambda: clock.run(path))
        patch.setattr(timers, "close_old_connections", lambda: None)
        leader = ["a"]
        both = [
            clock.thread(Tick("look", 5.0, by_leader=True), leads=lambda n=name: leader[0] == n)
            for name in "ab"
        ]
        for seconds, swap in [*kills, (50, False)]:
            leader[0] = "ab".replace(leader[0], "") if swap else leader[0]
            end = clock.s + seconds
            while clock.s < end:
                wait = max(0.1, min(one.step() for one in both))
                clock.s = min(end, clock.s + wait)
        times = [0.0, *(at for _, at in clock.came), clock.s]
        longest = max(later - at for at, later in pairwise(times))
        assert longest <= 5 + LEAD_LOOK_S + 1


def test_a_database_that_does_not_say_who_leads_ends_no_thread(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def leads() -> bool:
        if not waits:
            raise DatabaseError("away")
        return True

    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        clock.s += seconds
        if clock.came:
            over.set()
        return over.is_set()

    monkeypatch.setattr(over, "wait", wait)
    clock.s = 100.0
    thread = clock.thread(Tick("look", 5.0, by_leader=True), leads=leads)
    clock.s = 105.0
    thread.run_until(over)
    assert clock.came == [("look", 105.0 + LEAD_LOOK_S)]


# --- threads ---------------------------------------------------------------------------------
@pytest.fixture
def over() -> Iterator[threading.Event]:
    found = threading.Event()
    yield found
    found.set()


def test_a_tick_that_hangs_delays_none_of_another_thread_and_all_end_together(
    monkeypatch: pytest.MonkeyPatch, over: threading.Event
) -> None:
    hangs, answered, swept = threading.Event(), threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        hangs.set()
        assert answered.wait(LIMIT_S)

    work = {"brokers": hang, "sweep": swept.release, "led": hangs.clear}
    monkeypatch.setattr(timers, "import_string", work.__getitem__)
    monkeypatch.setattr(signs_of_life, "try_to_report", lambda _: None)
    ticks = (Tick("brokers", 0.01), Tick("sweep", 0.01), Tick("led", 0.01, by_leader=True))
    running = Timers(over, ticks=ticks, leads=lambda: False)
    running.start()
    assert hangs.wait(LIMIT_S)
    for _ in range(3):
        assert swept.acquire(timeout=LIMIT_S)
    runs = running.report().runs
    assert runs["brokers"].is_running
    assert "led" not in runs
    over.set()
    running.join(0.1)  # is over although one hangs
    answered.set()
    running.join(LIMIT_S)
    alive = {thread.name for thread in threading.enumerate()}
    assert not alive & {"ticks-brokers", "ticks-sweep", "ticks-led", "ticks-report"}


@pytest.mark.redis
def test_the_times_are_read_as_they_were_reported(
    monkeypatch: pytest.MonkeyPatch, over: threading.Event, valkey: ValkeyServer
) -> None:
    ran = threading.Event()
    monkeypatch.setattr(timers, "import_string", lambda _: ran.set)
    running = Timers(over, ticks=(Tick("sweep", 0.01),), leads=lambda: True)
    running.start()
    assert ran.wait(LIMIT_S)
    over.set()
    running.join(LIMIT_S)
    told = running.report()
    with valkey.client() as client:
        signs_of_life.report(client, told)
        client.hset("headgate:ticks", "odd", '{"at": 5}')
        assert signs_of_life.reports(client) == [told]
