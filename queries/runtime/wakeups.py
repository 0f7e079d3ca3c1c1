"""What the driver's main loop sleeps on: signals, its runs' news, the JVM's end."""

import contextlib
import os
import select
import signal

#: Seconds for which an end is awaited whose first sign was an error: the kernel closes a process's
#: connections a moment before it reports its end.
_ENDING_S = 0.2


class Wake:
    """A pipe that signals and threads write into and the main loop waits on."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._others: dict[int, str] = {}
        self.leave = False  # a SIGTERM has come

    def catch_signals(self) -> None:
        """Install the handlers; they only set a flag and write the wake-up byte (trap 4)."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGUSR1, self._nudged)
        signal.signal(signal.SIGTERM, self._asked_to_leave)
        # SparkContext's own handler cancels jobs and raises in the main thread (trap 22).
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch(self, descriptor: int, name: str) -> None:
        """Wake, too, when the descriptor becomes readable; `wait` then returns its name."""
        self._others[descriptor] = name

    def call(self) -> None:
        """Wake the main loop; from any thread."""
        with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            os.write(self._write, b"\0")

    def wait(self, timeout_s: float) -> set[str]:
        """Sleep until something happens; return the names of watched descriptors that did."""
        ready, _, _ = select.select([self._read, *self._others], [], [], timeout_s)
        if self._read in ready:
            with contextlib.suppress(BlockingIOError):
                while signals := os.read(self._read, 4096):
                    # Its handler runs in the main thread, where users' code may be: later, or not.
                    self.leave = self.leave or signal.SIGTERM in signals
        return {self._others[descriptor] for descriptor in ready if descriptor in self._others}

    def has_ended(self, name: str) -> bool:
        """Tell whether the process watched under this name has ended, or does within a moment."""
        watched = [one for one, called in self._others.items() if called == name]
        return bool(watched and select.select(watched, [], [], _ENDING_S)[0])

    def _nudged(self, *_: object) -> None:
        pass

    def _asked_to_leave(self, *_: object) -> None:
        self.leave = True
