"""Work beside a tick begins at once while a thread is free, and nothing piles up."""

import threading

from listeners.loops.side_threads import SideThreads

LIMIT_S = 60


def test_while_all_threads_hang_each_name_waits_once() -> None:
    threads = SideThreads(1, "test")
    came: list[str] = []
    begun, answered, done = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert answered.wait(LIMIT_S)

    threads.run("deploys", hang)
    assert begun.wait(LIMIT_S)
    for _ in range(3):  # ticks that come while the only thread hangs
        threads.run("deploys", lambda: came.append("deploys"))
        threads.run("alerts", lambda: came.append("alerts"))
    threads.run("last", done.set)
    answered.set()
    assert done.wait(LIMIT_S)
    assert came == ["deploys", "alerts"]
