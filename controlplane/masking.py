"""Keep secrets out of log lines, and mask long strings in a separate process.

A web request searches at most 64 KiB itself (`WebSearch`); a child process, which ends with the web
process, searches the rest. A string that the child does not search in time is not shown.
"""

import atexit
import contextlib
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import headgate_ground
from headgate_ground.masking import LocalSearcher, mask_text


class Masked(logging.Formatter):
    """Formats a record, masking everything that looks like a secret.

    The finished text is masked, including tracebacks and arguments.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line (and traceback, if any) with secrets masked."""
        return mask_text(super().format(record))


def not_a_probe(record: logging.LogRecord) -> bool:
    """Pass a record unless it is about a health check; its response already has the information."""
    request = getattr(record, "request", None)
    return getattr(request, "path", "") not in ("/readyz", "/healthz")


#: Characters that a web request searches for secrets itself; the slowest take 0.2 s.
IN_REQUEST = 64 * 1024
#: Limit for one answer of the child, and for waiting until it has answered others. A log's tail of
#: 256 KiB takes 0.1 s, and the slowest text of 2.5 MiB, the longest form, 7 s.
ANSWER_WITHIN_S = 30.0

_COMMAND = (sys.executable, "-m", "headgate_ground.masking_process")


class MaskingFailed(Exception):
    """The child did not search a string in time, or could not be started."""


class MaskingProcess:
    """A child process that searches strings one by one; started when first needed."""

    def __init__(self, command: tuple[str, ...] = _COMMAND) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def request(self, kind: str, text: str, *, within_s: float = ANSWER_WITHIN_S) -> Any:
        """Return the child's answer to "mask" or "find"; raise `MaskingFailed` if there is none."""
        if not self._lock.acquire(timeout=within_s):
            raise MaskingFailed
        try:
            child = self._started()
            limit = threading.Timer(within_s, child.kill)  # ends a write or a read that waits
            limit.start()
            try:
                return self._answer(child, kind, text)
            finally:
                limit.cancel()
        except (OSError, ValueError) as error:
            self._end()
            raise MaskingFailed from error
        finally:
            self._lock.release()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self._end()
            pipe = subprocess.PIPE
            folder = Path(headgate_ground.__file__).parent.parent
            self._child = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, cwd=folder, env={}
            )
        return self._child

    def _answer(self, child: subprocess.Popen[bytes], kind: str, text: str) -> Any:
        if child.stdin is None or child.stdout is None:
            raise ValueError("the child has no pipes")
        child.stdin.write(json.dumps([kind, text]).encode() + b"\n")
        child.stdin.flush()
        return json.loads(child.stdout.readline())  # ValueError: it ended

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # bytes that it did not read
                        pipe.close()

    def close(self) -> None:
        """End the child; the next search starts another."""
        with self._lock:
            self._end()


PROCESS = MaskingProcess()
atexit.register(PROCESS.close)


class WebSearch:
    """Searches the strings of one web request, the first 64 KiB of them in this process."""

    def __init__(self, process: MaskingProcess = PROCESS) -> None:
        self._process = process
        self._local = LocalSearcher()
        self.left = IN_REQUEST  # characters

    def mask(self, text: str) -> str:
        """Return the text masked, or a note in its place if that takes too long."""
        if self._is_short(text):
            return self._local.mask(text)
        try:
            return str(self._process.request("mask", text))
        except MaskingFailed:
            return (
                f"(Not shown: {len(text):,} characters could not be searched for secrets in time.)"
            )

    def find(self, text: str) -> set[str]:
        """Return the secrets in a string; if that takes too long, all of it counts as one."""
        if self._is_short(text):
            return self._local.find(text)
        try:
            return set(self._process.request("find", text))
        except MaskingFailed:
            return {text}

    def _is_short(self, text: str) -> bool:
        if len(text) > self.left:
            return False
        self.left -= len(text)
        return True
