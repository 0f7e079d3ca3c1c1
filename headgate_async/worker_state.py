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
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from headgate_async.limiter import Limiter

_NAME = "_headgate_async_kept"

#: Spark kills (SIGKILL) a Python worker that has been idle for a minute, so clients unused for this
#: long are closed before that.
IDLE_S = 30.0
#: Maximum time for closing at the worker's end.
CLOSE_S = 5.0


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
