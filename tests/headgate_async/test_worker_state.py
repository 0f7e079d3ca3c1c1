"""What stays in a Python worker between tasks, and how it is let go."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from pyspark import cloudpickle

import headgate_async
from headgate_async.limiter import Fixed
from headgate_async.worker_state import (
    AsyncClients,
    OperatorState,
    Registry,
    ThreadClients,
    registry,
)
from tests.headgate_async.virtual_time import run

Make = Callable[[], OperatorState]


class Remote:
    """Counts who is connected, and may refuse."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.refusing = False
        self.stuck = False
        self.gone = threading.Event()

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[str]:
        if self.refusing:
            raise ConnectionRefusedError("not now")
        self.opened += 1
        await asyncio.sleep(0.01)
        try:
            yield f"client {self.opened}"
        finally:
            if self.stuck:
                await asyncio.sleep(1e6)
            self.closed += 1
            self.gone.set()

    @contextlib.contextmanager
    def connect_blocking(self) -> Iterator[str]:
        self.opened += 1
        try:
            yield f"client {self.opened}"
        finally:
            self.closed += 1


def test_all_who_need_a_client_wait_for_the_same_opening() -> None:
    async def story() -> None:
        remote = Remote()
        clients = AsyncClients(remote.connect)
        found = await asyncio.gather(*(clients.get() for _ in range(20)))
        assert set(found) == {"client 1"}
        assert clients.current == "client 1"
        await clients.close()
        assert (remote.opened, remote.closed) == (1, 1)

    run(story())


def test_a_broken_client_is_closed_once_and_another_one_opened() -> None:
    async def story() -> None:
        remote = Remote()
        clients = AsyncClients(remote.connect)
        first = await clients.get()
        clients.broke(first)
        clients.broke(first)  # a second call of the same client notices too
        assert clients.current is None
        assert await clients.get() == "client 2"
        clients.broke(first)
        assert clients.current == "client 2", "the new one is not the old one's affair"
        await clients.close()
        assert (remote.opened, remote.closed) == (2, 2)

    run(story())


def test_an_opening_that_fails_is_told_to_all_who_wait_and_tried_anew() -> None:
    async def story() -> None:
        remote = Remote()
        remote.refusing = True
        clients = AsyncClients(remote.connect)
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                await clients.get()
        remote.refusing = False
        assert await clients.get() == "client 1"
        await clients.close()

    run(story())


def test_a_client_that_does_not_close_is_left_after_a_while() -> None:
    async def story() -> float:
        remote = Remote()
        remote.stuck = True
        clients = AsyncClients(remote.connect)
        await clients.get()
        began = asyncio.get_running_loop().time()
        await clients.close()
        return asyncio.get_running_loop().time() - began

    assert run(story()) == pytest.approx(5.0)


def test_each_thread_has_a_client_of_its_own() -> None:
    remote = Remote()
    clients = ThreadClients(remote.connect_blocking)
    found: list[Any] = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.extend([clients.get(), clients.get()]))
        thread.start()
        thread.join()
    assert found == ["client 1"] * 2 + ["client 2"] * 2 + ["client 3"] * 2
    assert clients.get() == "client 4"
    clients.broke()
    assert remote.closed == 1
    assert clients.get() == "client 5"
    clients.close()
    assert (remote.opened, remote.closed) == (5, 5)


def kept(remote: Remote, idle_s: float) -> Make:
    def make() -> OperatorState:
        made = OperatorState(Fixed(1), idle_s=idle_s)
        made.clients = AsyncClients(remote.connect)
        return made

    return make


def test_what_nobody_uses_is_closed_and_made_anew_when_it_is_wanted_again() -> None:
    remote, keeper = Remote(), Registry()
    first = keeper.acquire("operator", kept(remote, 0.05))
    first.run(first.clients.get()).result(10)
    keeper.release("operator", first)
    assert remote.gone.wait(30), "it is closed by itself"
    second = keeper.acquire("operator", kept(remote, 60))
    assert second is not first
    keeper.release("operator", second)
    keeper.close()


def test_what_is_used_again_in_time_stays() -> None:
    remote, keeper = Remote(), Registry()
    first = keeper.acquire("operator", kept(remote, 60))
    keeper.release("operator", first)
    assert keeper.acquire("operator", kept(remote, 60)) is first
    keeper.release("operator", first)
    keeper.close()
    assert first.ended
    first.close()


def test_a_copy_of_the_package_that_travelled_by_value_finds_the_same_registry() -> None:
    cloudpickle.register_pickle_by_value(headgate_async)
    try:
        copied = cloudpickle.loads(cloudpickle.dumps(registry))
    finally:
        cloudpickle.unregister_pickle_by_value(headgate_async)
    assert copied is not registry
    assert copied() is registry()
