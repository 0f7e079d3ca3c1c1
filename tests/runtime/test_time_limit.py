"""A probe's time is up when nothing has moved for its limit, or after its maximum."""

import threading

import pytest

from queries.runtime.probes.io import TimeLimit

GENEROUS_S = 30


@pytest.mark.parametrize(
    ("most_s", "moves", "said"),
    [
        (0.0, True, "Not finished within 0 s"),
        (0.3, True, "Not finished within 0 s"),
        (600.0, False, "No progress for 0 s"),
    ],
)
def test_when_the_time_is_up(most_s: float, moves: bool, said: str) -> None:
    heard: list[str] = []
    over = threading.Event()

    def ends(what: str) -> None:
        heard.append(what)
        over.set()

    TimeLimit(0.05, most_s=most_s, moved=lambda: moves, over=ends)
    assert over.wait(GENEROUS_S)
    assert heard == [said]


def test_what_moves_or_is_finished_is_not_ended() -> None:
    looks, over = threading.Semaphore(0), threading.Event()

    def moved() -> bool:
        looks.release()
        return True

    limit = TimeLimit(0.01, most_s=600, moved=moved, over=lambda _: over.set())
    for _ in range(5):
        assert looks.acquire(timeout=GENEROUS_S)
    limit.end()
    assert not over.is_set()
