"""Wake the driver's main loop: on signals, on changes in its runs, and when the JVM ends."""

import contextlib
import os
import select
import signal

#: Seconds to wait for an end that first appeared as an error: the kernel closes a process's
#: connections a moment before it reports the end.
_ENDING_S = 0.2


class Wake:
    """A pipe that signals and threads write to, and on which the main loop waits."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._others: dict[int, str] = {}
        self.leave = False  # a SIGTERM was received

    def catch_signals(self) -> None:
        """Install the signal handlers; they only set a flag and write the wake-up byte (trap 4)."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGUSR1, self._nudged)
        signal.signal(signal.SIGTERM, self._leave_on_sigterm)
        # SparkContext's own handler cancels jobs and raises in the main thread (trap 22).
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch(self, descriptor: int, name: str) -> None:
        """Also wake when a descriptor becomes readable; `wait` then returns its name."""
        self._others[descriptor] = name

    def notify(self) -> None:
        """Wake the main loop; from any thread."""
        with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            os.write(self._write, b"\0")

    def wait(self, timeout_s: float) -> set[str]:
        """Sleep until something happens; return the names of readable watched descriptors."""
        ready, _, _ = select.select([self._read, *self._others], [], [], timeout_s)
        if self._read in ready:
            with contextlib.suppress(BlockingIOError):
                while signals := os.read(self._read, 4096):
                    # Its handler runs in the main thread, which may be executing users' code: it
                    # may run late, or never.
                    self.leave = self.leave or signal.SIGTERM in signals
        return {self._others[descriptor] for descriptor in ready if descriptor in self._others}

    def has_ended(self, name: str) -> bool:
        """Return whether the process watched under this name has ended, or is about to end."""
        watched = [descriptor for descriptor, called in self._others.items() if called == name]
        return bool(watched and select.select(watched, [], [], _ENDING_S)[0])

    def _nudged(self, *_: object) -> None:
        pass

    def _leave_on_sigterm(self, *_: object) -> None:
        self.leave = True
