"""Speak with the parser's process, which has read authors' texts and is not trusted."""

import contextlib
import json
import os
import select
import subprocess
import time
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from queries.domain.definitions.sql_verdict import (
    Question,
    SqlVerdict,
    read_question,
    read_verdict,
)
from queries.spark_parser.parser import PARSE_LIMIT_S, NoParser

#: Seconds for Python and the JVM to start; on a quiet machine it is one.
STARTS_WITHIN_S = 120
#: Seconds for an answer: longer than the parser's own limit for a call of Java, so that it can
#: answer which call took too long.
ANSWERS_WITHIN_S = PARSE_LIMIT_S + 30
#: Bytes of an answer; the plan of a text with a thousand lines has some 100 KB.
LONGEST_ANSWER = 8 * 1024 * 1024
_LEAVES_WITHIN_S = 10
_ERRORS = 4000  # bytes of the process's errors that are looked at


class ParserProcess:
    """The process of a parser, which ends with the block. Not thread-safe."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.version = ""
        self._questions, self._answers, self._errors = (
            process.stdin,
            process.stdout,
            process.stderr,
        )
        self._buffer = b""
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

    def judge(self, question: Question) -> SqlVerdict:
        """Return Spark's verdict on SQL text; raise `NoParser` if there is none."""
        if not self.version:
            self.version = str(self._heard(STARTS_WITHIN_S).get("version", ""))[:40]
        line = json.dumps(asdict(read_question(asdict(question)))).encode() + b"\n"
        self._write(line, time.monotonic() + ANSWERS_WITHIN_S)
        said = self._heard(ANSWERS_WITHIN_S)
        try:
            return read_verdict(said["verdict"])
        except (KeyError, TypeError, ValueError) as error:
            raise NoParser(f"Spark's parser has sent no verdict: {error}") from error

    def _write(self, line: bytes, deadline: float) -> None:
        while line:
            if not select.select([], [self._questions], [], self._left(deadline))[1]:
                raise NoParser(f"Spark's parser did not read within {ANSWERS_WITHIN_S} s.")
            try:
                line = line[os.write(self._questions.fileno(), line) :]
            except OSError as error:
                raise NoParser(f"Spark's parser has ended. {self._said()}") from error

    def _heard(self, limit_s: int) -> dict[str, Any]:
        """Return the next answer; raise `NoParser` if it is late, too long or not JSON."""
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            if not select.select([self._answers], [], [], self._left(deadline))[0]:
                raise NoParser(f"Spark's parser did not answer within {limit_s} s.")
            found = os.read(self._answers.fileno(), 1 << 16)
            if not found:
                raise NoParser(f"Spark's parser has ended. {self._said()}")
            self._buffer += found
            if len(self._buffer) > LONGEST_ANSWER:
                raise NoParser(f"Spark's parser sent more than {LONGEST_ANSWER:,} bytes.")
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            said: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise NoParser("Spark's parser sent something that is not JSON.") from error
        if not isinstance(said, dict):
            raise NoParser("Spark's parser sent something that is not an answer.")
        if "failed" in said:
            raise NoParser(str(said["failed"])[:1000])
        return said

    def _said(self) -> str:
        """Return the last line of its errors, as far as it fits into the pipe."""
        with contextlib.suppress(OSError):
            text = os.read(self._errors.fileno(), 1 << 16)[-_ERRORS:].decode(errors="replace")
            return text.strip().rpartition("\n")[2][:400]
        return ""

    @staticmethod
    def _left(deadline: float) -> float:
        return max(0.0, deadline - time.monotonic())

    def close(self) -> None:
        """End the process, by force if it does not leave when its input is closed."""
        with contextlib.suppress(OSError):
            self._questions.close()
        try:
            self.process.wait(_LEAVES_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()  # bubblewrap; the kernel ends what is within
            self.process.wait(_LEAVES_WITHIN_S)
        self._answers.close()
        self._errors.close()
