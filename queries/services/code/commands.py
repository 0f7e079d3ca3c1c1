"""Run git and uv: with a limit on time and size, an environment of their own, and no terminal."""

import contextlib
import os
import re
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from queries.domain.masking import mask_text
from queries.services.code.download_limits import Download, LimitReached

#: Of a file that a command writes, in bytes.
LARGEST_FILE = 512 * 1024 * 1024
#: Of a command's memory, in bytes: git keeps a server's list of names there, however long it is.
MOST_MEMORY = 4 * 1024**3
#: Characters of what a command says that are kept: the end of it says why it failed.
SAID_MOST = 4_000
#: What a command may see of the worker's environment: where it finds programs, proxies, CAs.
_PASS = re.compile(
    r"(PATH|HOME|LANG|TZ|SSL_CERT_(FILE|DIR)|(HTTP|HTTPS|NO|ALL)_PROXY)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Said:
    """What a command that has succeeded printed."""

    out: str
    err: str


class CommandFailed(Exception):
    """A command has failed; the message is what it said, without secrets."""


def environment(*names: str, **more: str) -> dict[str, str]:
    """Return the environment for a command: a short list, these names or beginnings, and more."""
    found = {
        name: value
        for name, value in os.environ.items()
        if _PASS.fullmatch(name) or (names and name.startswith(names))
    }
    return found | more


def run(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    download: Download,
    output: Path | None = None,
) -> Said:
    """Run a command and return what it printed; with `output`, that goes into a file instead.

    Raises `CommandFailed` with the command's own words, and where the download that it is part of
    takes too long or brings too much.
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
        with contextlib.suppress(ProcessLookupError):  # what it starts inherits the limits
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        printed, said = _followed(process, download)
    if process.returncode == -signal.SIGXFSZ:
        raise CommandFailed(f"It wrote more than {LARGEST_FILE // 2**20} MB and was ended.")
    if process.returncode:
        raise CommandFailed(in_words(said) or f"It ended with code {process.returncode}.")
    return Said(printed.decode("utf-8", "replace"), said.decode("utf-8", "replace"))


def _followed(process: subprocess.Popen[bytes], download: Download) -> tuple[bytes, bytes]:
    """Return what a command prints and says; end it with all that it started at a limit."""
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                printed, said = process.communicate(timeout=download.pause())
                break
        download.check()  # it may have been quicker than the looks
    except LimitReached as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise CommandFailed(str(error)) from None
    return printed or b"", said


def in_words(said: bytes) -> str:
    """Return the end of what a command said, as text without secrets."""
    text = said.decode("utf-8", "replace").replace("\0", "").strip()
    return mask_text(text[-2 * SAID_MOST :])[-SAID_MOST:]
