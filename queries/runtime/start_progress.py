"""Whether the start of one query advances, measured by the threads that do its work.

A driver's processor time says nothing about one of its starts: its other queries use it too. So
only the thread that builds the query counts, in Python and in the JVM, and the steps of the run.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from queries.domain.failures.context import left_out
from queries.domain.supervision.progress import LEAST_CPU_S
from queries.runtime.process import stat_cpu_s

_THREADS = Path("/proc/self/task")
#: Seconds between two questions to the JVM.
_READ_JVM_EVERY_S = 5.0


class StartProgress:
    """When a start last advanced, on the monotonic clock."""

    def __init__(self, report: Callable[[], None]) -> None:
        """`tell` is called whenever the start has advanced, from any thread."""
        self.began_at = self.advanced_at = time.monotonic()
        self._report = report
        self._used = 0.0  # when it last advanced
        self._jvm: Any = None
        self._jvm_thread = 0
        self._jvm_used, self._jvm_read_at = 0.0, 0.0

    def begin_at(self, at: float) -> None:
        """Count from a later time: the start has waited until then."""
        self.began_at = self.advanced_at = at

    def learn_jvm_thread(self, jvm: Any) -> None:
        """Note the JVM's thread for the calling thread; without it, only Python's is measured."""
        if jvm is not None:
            number = left_out(lambda: int(jvm.java.lang.Thread.currentThread().getId()), 0)
            self._jvm, self._jvm_thread = jvm, number

    def step(self) -> None:
        """Note that a step has ended."""
        self.advanced_at = time.monotonic()
        self._report()

    def look(self, thread: int | None) -> None:
        """Note whether the start has used processor time; `thread` is the kernel's thread ID."""
        # `time.pthread_getcpuclockid` may crash the process if the thread ends meanwhile.
        used = stat_cpu_s(_THREADS / str(thread) / "stat") + self._in_jvm()
        if used >= self._used + LEAST_CPU_S:
            self._used = used
            self.step()

    def _in_jvm(self) -> float:
        now = time.monotonic()
        if self._jvm_thread and now - self._jvm_read_at >= _READ_JVM_EVERY_S:
            self._jvm_read_at = now
            beans = self._jvm.java.lang.management.ManagementFactory
            cpu_ns = left_out(lambda: beans.getThreadMXBean().getThreadCpuTime(self._jvm_thread), 0)
            self._jvm_used = max(self._jvm_used, int(cpu_ns) / 1e9)
        return self._jvm_used
