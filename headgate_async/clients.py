"""Manage clients of the remote service: open once, keep between batches, reopen after errors."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

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
