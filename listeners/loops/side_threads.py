"""Run work that may wait for another system in threads of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class SideThreads:
    """Threads of a process; the interpreter waits for their work when it exits, as Celery does."""

    def __init__(self, most: int, name: str) -> None:
        """`most`: how many threads there are at most; `name`: the prefix of their names."""
        self._threads = ThreadPoolExecutor(most, thread_name_prefix=name)
        self._waiting: set[str] = set()
        self._guard = threading.Lock()

    def run(self, name: str, work: Callable[[], object]) -> None:
        """Run `work`, which handles its own errors, and return at once.

        It is dropped if work of that name is already waiting for a thread: it would find nothing
        more to do, and if all threads hang, nothing piles up.
        """
        with self._guard:
            if name in self._waiting:
                return
            self._waiting.add(name)

        def begin() -> None:
            with self._guard:
                self._waiting.discard(name)
            work()

        self._threads.submit(begin)
