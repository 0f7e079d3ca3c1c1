"""A script that starts a query again, as soon as Spark has told it of the end."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from queries.domain.protocol import FoundQuery, ScriptJob
from queries.runtime.code.stream_writers import settings_of
from queries.runtime.scripts.intercepted_starts import Meeting


class _Locks:
    """A lock that the former run holds for as long as its thread lives."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def take(self, location: str, **_: Any) -> None:
        raise _Taken if self.free.is_set() else AssertionError(f"{location} is still held")


class _Taken(Exception):
    """The start has come as far as to the lock, and got it."""


class _Former:
    """A run that Spark has ended, and whose thread still has work to do."""

    def __init__(self, found: FoundQuery, locks: _Locks) -> None:
        self.found, self.in_spark = found, False
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._finish, args=(locks,))
        self._thread.start()

    @property
    def working(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        self._begun.set()  # the start waits: only then does the work go on
        self._thread.join(timeout_s)

    def _finish(self, locks: _Locks) -> None:
        self._begun.wait(10)
        locks.free.set()


def test_the_start_waits_for_the_lock_of_the_run_before() -> None:
    locks, place = _Locks(), "file:///tmp/checkpoints/counts"
    board = SimpleNamespace(read=lambda _: None, forget_query=lambda _: None)
    around: Any = SimpleNamespace(locks=locks, board=board, roots=None)
    job = ScriptJob("job.py", "", (), "/tmp/work", "file:///tmp/checkpoints")
    meeting = Meeting(job, around, epoch=1)
    former: Any = _Former(FoundQuery(7, "name:counts", "counts", place, place), locks)
    meeting.runs[7] = former
    writer: Any = SimpleNamespace(_df=None)
    said = settings_of(writer)
    said.name, said.checkpoint = "counts", place
    with pytest.raises(_Taken):
        meeting.begin(writer, lambda: None)
    former._begun.set()
