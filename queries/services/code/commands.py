"""Run git and uv with time and size limits, a separate environment, and no terminal."""

import contextlib
import os
import re
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate_ground.masking import mask_text
from queries.services.code.download_limits import Download, LimitReached

#: Largest file that a command can write, in bytes.
LARGEST_FILE = 512 * 1024 * 1024
#: Memory limit of a command, in bytes: git holds a server's whole ref list in memory.
MOST_MEMORY = 4 * 1024**3
#: Characters of a command's output kept, from the end, which says why it failed.
OUTPUT_LIMIT = 4_000
#: Worker environment variables passed to a command: program paths, proxies, CAs.
_PASS = re.compile(
    r"(PATH|HOME|LANG|TZ|SSL_CERT_(FILE|DIR)|(HTTP|HTTPS|NO|ALL)_PROXY)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The output of a successful command."""

    out: str
    err: str


class CommandFailed(Exception):
    """The error that a command failed; its message is the command's output, with secrets masked."""


def environment(*names: str, **more: str) -> dict[str, str]:
    """Return the environment for a command: a few allowed variables, plus `more`."""
    allowed = {
        name: value
        for name, value in os.environ.items()
        if _PASS.fullmatch(name) or (names and name.startswith(names))
    }
    return allowed | more


def run(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    download: Download,
    output: Path | None = None,
) -> CommandOutput:
    """Run a command and return its output; with `output`, write its stdout to that file instead.

    Raises `CommandFailed` with the command's own output, or if the download that it is part of
    takes too long or becomes too large.
    """
    into = output.open("xb") if output else None
    with contextlib.ExitStack() as stack:
        if into is not None:
            stack.enter_context(into)
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=into or subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:
            raise CommandFailed(f"{command[0]} cannot be run: {error.strerror}.") from error
        with contextlib.suppress(ProcessLookupError):  # child processes inherit the limits
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        printed, stderr = _followed(process, download)
    if process.returncode == -signal.SIGXFSZ:
        raise CommandFailed(f"It wrote more than {LARGEST_FILE // 2**20} MB and was stopped.")
    if process.returncode:
        raise CommandFailed(in_words(stderr) or f"It exited with code {process.returncode}.")
    return CommandOutput(printed.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


def _followed(process: subprocess.Popen[bytes], download: Download) -> tuple[bytes, bytes]:
    """Return a command's stdout and stderr; if it reaches a limit, kill it and all its children."""
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                printed, stderr = process.communicate(timeout=download.pause())
                break
        download.check()  # it may have ended between two checks
    except LimitReached as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise CommandFailed(str(error)) from None
    return printed or b"", stderr


def in_words(output: bytes) -> str:
    """Return the end of a command's output as text, with secrets masked."""
    text = output.decode("utf-8", "replace").replace("\0", "").strip()
    return mask_text(text[-2 * OUTPUT_LIMIT :])[-OUTPUT_LIMIT:]
