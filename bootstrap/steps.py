"""Run commands, print each, and print at the end how long each part took."""

import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from run import say

#: The parts that have ended: name, seconds, exit code.
PARTS: list[tuple[str, float, int]] = []


def run(*command: str, go_on: bool = False, part: str = "") -> int:
    """Run a command and return its code; leave with it where it is not 0, unless `go_on`.

    With `part`, the time that it took is printed at the end under that name.
    """
    say(f"\n$ {shlex.join(_shown(command))}")
    began = time.monotonic()
    code = subprocess.call(command)
    if part:
        PARTS.append((part, time.monotonic() - began, code))
    if code and not go_on:
        sys.exit(code)
    return code


class Beside:
    """A command that runs in parallel with others; its output is shown at its end."""

    def __init__(self, *command: str, part: str) -> None:
        say(f"\n$ {shlex.join(_shown(command))} &")
        self._part, self._began, self._seconds = part, time.monotonic(), 0.0
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `end`)
        self._process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT)
        # Its own end is timed, not the moment at which somebody waits for it.
        self._watch = threading.Thread(target=self._wait, name=part)
        self._watch.start()

    def end(self) -> int:
        """Wait for its end and show its output; return its code."""
        self._watch.join()
        code = self._process.returncode
        PARTS.append((self._part, self._seconds, code))
        with self._output as output:
            output.seek(0)
            say(f"\n{self._part}:\n{output.read().rstrip()}")
        return code

    def _wait(self) -> None:
        self._process.wait()
        self._seconds = time.monotonic() - self._began


@contextmanager
def told() -> Iterator[None]:
    """Print how long each part took, also after an error."""
    began = time.monotonic()
    try:
        yield
    finally:
        say("")
        for part, seconds, code in PARTS:
            say(f"{part:<32}{clock(seconds):>8}{'' if code == 0 else f'  failed ({code})'}")
        say(f"{'together':<32}{clock(time.monotonic() - began):>8}")


def clock(seconds: float) -> str:
    """Return "9.5 s" or "2:05 min"."""
    return (
        f"{int(seconds) // 60}:{int(seconds) % 60:02d} min" if seconds >= 60 else f"{seconds:.1f} s"
    )


def _shown(command: Sequence[str]) -> list[str]:
    return ["python" if part == sys.executable else part for part in command]
