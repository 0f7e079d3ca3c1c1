"""Speak through pipes with a program of ours that has read an author's data and is not trusted.

What it sends is limited in size and time. It has no other connection with its worker: see
`queries.launchers.process.isolation.apply`, which starts it.
"""

import contextlib
import json
import os
import select
import subprocess
import time
from types import TracebackType
from typing import Any, ClassVar, Self

#: Seconds for a program to leave once its input is closed.
LEAVES_WITHIN_S = 10
_ERRORS = 4000  # bytes of the process's errors that are looked at


class ToolFailed(Exception):
    """The program has ended, is late, or has sent no answer; the message is a sentence."""


class ToolProcess:
    """The process of a program, which ends with the block. Not thread-safe."""

    #: What it is called at the beginning of a sentence, and the error that is raised for it.
    name: ClassVar[str]
    failure: ClassVar[type[Exception]] = ToolFailed
    longest: ClassVar[int]  # bytes of an answer

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self._questions, self._answers, self._errors = (
            process.stdin,
            process.stdout,
            process.stderr,
        )
        self._buffer = bytearray()
        for pipe in (self._questions, self._answers, self._errors):
            os.set_blocking(pipe.fileno(), False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, data: bytes, limit_s: float) -> None:
        """Send data within a time; raise `failure` otherwise."""
        deadline, left = time.monotonic() + limit_s, memoryview(data)
        while left:
            if not select.select([], [self._questions], [], _left(deadline))[1]:
                raise self.failure(f"{self.name} did not read within {limit_s:.0f} s.")
            try:
                left = left[os.write(self._questions.fileno(), left) :]
            except OSError as error:
                raise self.failure(f"{self.name} has ended. {self._last_error()}") from error

    def read_answer(self, limit_s: float) -> dict[str, Any]:
        """Return the next answer; raise `failure` if it is late, too long or not JSON."""
        deadline, searched_to = time.monotonic() + limit_s, 0
        while self._buffer.find(b"\n", searched_to) < 0:
            searched_to = len(self._buffer)
            if not select.select([self._answers], [], [], _left(deadline))[0]:
                raise self.failure(f"{self.name} did not answer within {limit_s:.0f} s.")
            data = os.read(self._answers.fileno(), 1 << 16)
            if not data:
                raise self.failure(f"{self.name} has ended. {self._last_error()}")
            self._buffer += data
            if len(self._buffer) > self.longest:
                raise self.failure(f"{self.name} sent more than {self.longest:,} bytes.")
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            answer: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self.failure(f"{self.name} sent something that is not JSON.") from error
        if not isinstance(answer, dict):
            raise self.failure(f"{self.name} sent something that is not an answer.")
        if "failed" in answer:
            raise self.failure(str(answer["failed"])[:1000])
        return answer

    def _last_error(self) -> str:
        """Return the last line of its errors, as far as it fits into the pipe."""
        with contextlib.suppress(OSError):
            text = os.read(self._errors.fileno(), 1 << 16)[-_ERRORS:].decode(errors="replace")
            return text.strip().rpartition("\n")[2][:400]
        return ""

    def close(self) -> None:
        """End the process, by force if it does not leave when its input is closed."""
        with contextlib.suppress(OSError):
            self._questions.close()
        try:
            self.process.wait(LEAVES_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()  # bubblewrap; the kernel ends what is within
            self.process.wait(LEAVES_WITHIN_S)
        self._answers.close()
        self._errors.close()


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
