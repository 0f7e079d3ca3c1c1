"""The start of a query advances with its steps and with the processor time of its own threads."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from queries.runtime import liveness
from queries.runtime.liveness import StartProgress
from queries.runtime.process import stat_cpu_s


class Jvm:
    """A JVM whose threads have used so many nanoseconds, or that does not answer."""

    def __init__(self, *used: int) -> None:
        self._used: Iterator[int] = iter(used)
        bean = SimpleNamespace(getThreadCpuTime=lambda _: next(self._used))
        factory = SimpleNamespace(getThreadMXBean=lambda: bean)
        management = SimpleNamespace(ManagementFactory=factory)
        thread = SimpleNamespace(currentThread=lambda: SimpleNamespace(getId=lambda: 31))
        self.java: Any = SimpleNamespace(lang=SimpleNamespace(Thread=thread, management=management))


@pytest.fixture
def told() -> list[None]:
    return []


@pytest.fixture
def progress(told: list[None], monkeypatch: pytest.MonkeyPatch) -> StartProgress:
    monkeypatch.setattr(liveness, "_READ_JVM_EVERY_S", 0.0)
    return StartProgress(lambda: told.append(None))


def test_a_step_advances_it(progress: StartProgress, told: list[None]) -> None:
    before = progress.advanced_at
    progress.step()
    assert progress.advanced_at > before
    assert len(told) == 1


def test_the_jvms_thread_advances_it(progress: StartProgress, told: list[None]) -> None:
    progress.learn_jvm_thread(Jvm(1_900_000_000, 2_000_000_000, 3_900_000_000, -1, 4_000_000_000))
    counts = []
    for _ in range(5):
        progress.look(None)
        counts.append(len(told))
    assert counts == [0, 1, 1, 1, 2]


def test_a_jvm_that_does_not_answer_advances_nothing(
    progress: StartProgress, told: list[None]
) -> None:
    progress.learn_jvm_thread(Jvm())
    progress.look(None)
    progress.learn_jvm_thread(None)
    assert told == []


def test_the_python_thread_advances_it(
    progress: StartProgress, told: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "LEAST_CPU_S", 0.05)
    done, stop = threading.Event(), threading.Event()

    def works() -> None:
        while stat_cpu_s(Path(f"/proc/self/task/{threading.get_native_id()}/stat")) < 0.1:
            pass
        done.set()
        stop.wait(30)

    thread = threading.Thread(target=works)
    thread.start()
    assert done.wait(30)
    progress.look(thread.native_id)
    assert len(told) == 1
    progress.look(thread.native_id)
    assert len(told) == 1  # it only waits
    stop.set()
    thread.join(30)
    progress.look(thread.native_id)  # it has ended
    assert len(told) == 1


def test_what_waits_for_a_former_owner_begins_later(progress: StartProgress) -> None:
    progress.begin_at(12.5)
    assert (progress.began_at, progress.advanced_at) == (12.5, 12.5)
