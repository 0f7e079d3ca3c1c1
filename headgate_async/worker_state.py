"""Keep a Python worker's state between batches: the loop, its thread, clients, the limiter.

Spark reuses a Python worker for many tasks, and unpickles the function for each of them: a module
that was sent by value is then a new module each time, with new globals. The state is therefore
stored, by the operator's ID, in a module object in `sys.modules` whose name only this file knows.

The loop runs in its own thread. The worker's main thread reads from and writes to Spark while calls
continue; between batches, connections can still respond to pings.
"""

import asyncio
import atexit
import contextlib
import sys
import threading
import types
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from headgate_async.limiter import Limiter

#: How long a client may take to close, in seconds.
CLOSE_S = 5.0


class AsyncClients:
    """One client for coroutines, shared by all calls of a Python worker.

    `current` is the open client, or None if one must be opened first: callers check this and await
    `get()` only if it is None. All callers that need a client while one is being opened wait for
    that one.
    """

    def __init__(self, setup: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._setup = setup
        self._context: AbstractAsyncContextManager[Any] | None = None
        self._opening: asyncio.Task[Any] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self.current: Any = None
        self.opened = 0

    async def get(self) -> Any:
        """Return the open client; raise the original error if it could not be opened."""
        if self.current is not None:
            return self.current
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Any:
        try:
            context = self._setup()
            client = await context.__aenter__()
            self._context, self.current = context, client
            self.opened += 1
            return client
        finally:
            self._opening = None

    def broke(self, client: Any) -> None:
        """Drop a broken client; the next call opens another. Other clients are not affected."""
        if client is None or client is not self.current:
            return
        context, self._context, self.current = self._context, None, None
        task = asyncio.get_running_loop().create_task(_leave(context))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close the open client, and wait for those that are closing; bounded by `CLOSE_S`."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening}, timeout=CLOSE_S)
        self.broke(self.current)
        if self._closing:
            await asyncio.wait(set(self._closing), timeout=2 * CLOSE_S)


async def _leave(context: AbstractAsyncContextManager[Any] | None) -> None:
    """Exit a client's context, ignoring errors, since a broken client may fail to close."""
    if context is None:
        return
    with contextlib.suppress(Exception, asyncio.CancelledError):
        async with asyncio.timeout(CLOSE_S):
            await context.__aexit__(None, None, None)


class ThreadClients:
    """One client per thread, since most blocking clients must not be shared."""

    def __init__(self, setup: Callable[[], AbstractContextManager[Any]]) -> None:
        self._setup = setup
        self._mine = threading.local()
        self._open: set[AbstractContextManager[Any]] = set()
        self._guard = threading.Lock()
        self.opened = 0

    def get(self) -> Any:
        """Return this thread's client, opening it first if necessary."""
        context = getattr(self._mine, "context", None)
        if context is None:
            context = self._setup()
            self._mine.client = context.__enter__()
            self._mine.context = context
            with self._guard:
                self._open.add(context)
                self.opened += 1
        return self._mine.client

    def broke(self) -> None:
        """Close this thread's client; its next call opens another."""
        context, self._mine.context = getattr(self._mine, "context", None), None
        if context is not None:
            with self._guard:
                self._open.discard(context)
            _exit(context)

    def close(self) -> None:
        """Close every thread's client."""
        with self._guard:
            contexts, self._open = self._open, set()
        for context in contexts:
            _exit(context)


def _exit(context: AbstractContextManager[Any]) -> None:
    with contextlib.suppress(Exception):
        context.__exit__(None, None, None)


_NAME = "_headgate_async_kept"

#: Spark kills (SIGKILL) a Python worker that has been idle for a minute, so clients unused for this
#: long are closed before that.
IDLE_S = 30.0
#: Maximum time for closing at the worker's end.


class OperatorState:
    """One operator's loop, clients and limiter in this Python worker."""

    def __init__(self, limiter: Limiter, *, idle_s: float = IDLE_S) -> None:
        self.loop = asyncio.new_event_loop()
        self.limiter = limiter
        self.clients: Any = None
        self.pool: ThreadPoolExecutor | None = None
        self.users = 0
        self.ended = False
        self._idle_s = idle_s
        self._idle: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._run, name="headgate-async", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            with contextlib.suppress(Exception):
                _cancel_all(self.loop)
            self.loop.close()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> "Future[Any]":
        """Run a coroutine on the loop, from any other thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def rest(self, end: Any) -> None:
        """Call `end` once this state has not been used for a while."""
        self.loop.call_soon_threadsafe(self._rest, end)

    def _rest(self, end: Any) -> None:
        self.wake()
        self._idle = self.loop.call_later(
            self._idle_s, threading.Thread(target=end, daemon=True).start
        )

    def wake(self) -> None:
        """Cancel the end scheduled by `rest`."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def close(self) -> None:
        """Close the clients and the loop, and wait for the thread, for a limited time."""
        if self.ended:
            return
        self.ended = True
        close = getattr(self.clients, "close", None)
        if close is not None:
            with contextlib.suppress(Exception):
                if asyncio.iscoroutinefunction(close):
                    self.run(close()).result(2 * CLOSE_S)
                else:
                    close()
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CLOSE_S)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the remaining tasks, so that none is destroyed while pending."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=1.0))
    loop.run_until_complete(loop.shutdown_asyncgens())


class Registry:
    """The operators of this Python worker, by id."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._states: dict[str, OperatorState] = {}

    def acquire(self, operator: str, make: Any) -> OperatorState:
        """Return the state of an operator, creating it if necessary."""
        with self._guard:
            state = self._states.get(operator)
            if state is None:
                state = self._states[operator] = make()
            state.users += 1
        state.loop.call_soon_threadsafe(state.wake)
        return state

    def release(self, operator: str, state: OperatorState) -> None:
        """Signal that a task has ended."""
        with self._guard:
            state.users -= 1
        state.rest(lambda: self._end(operator, state))

    def _end(self, operator: str, state: OperatorState) -> None:
        with self._guard:
            if state.users or self._states.get(operator) is not state:
                return
            del self._states[operator]
        state.close()

    def close(self) -> None:
        """Close everything when the worker exits."""
        with self._guard:
            all_, self._states = list(self._states.values()), {}
        for state in all_:
            state.close()


def registry() -> Registry:
    """Return this process's registry, the same for every copy of this module."""
    module: Any = sys.modules.setdefault(_NAME, types.ModuleType(_NAME))
    if not hasattr(module, "registry"):
        made = Registry()
        module.registry = made
        atexit.register(made.close)
    return module.registry  # type: ignore[no-any-return]
