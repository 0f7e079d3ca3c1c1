"""An event loop whose time jumps to the next timer: no test waits, none depends on the machine."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Stuck(AssertionError):
    """Nothing is ready and no timer is set: what is awaited will never come."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs callbacks as ever, and moves its clock on when nothing is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._moment = 1000.0

    def time(self) -> float:
        return self._moment

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        scheduled: Any = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0].cancelled():
            scheduled[0]._scheduled = False
            scheduled.pop(0)
            scheduled.sort()
        if not ready:
            if not scheduled:
                raise Stuck("nothing is ready and no timer is set")
            self._moment = max(self._moment, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in virtual time and return its result."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()
