"""Run commands one after the other, saying which, and leave with the first failure's code."""

import shlex
import subprocess
import sys
from collections.abc import Sequence


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(*command: str, go_on: bool = False) -> int:
    """Run a command and return its code; leave with it where it is not 0, unless `go_on`."""
    say(f"\n$ {shlex.join(_shown(command))}")
    code = subprocess.call(command)
    if code and not go_on:
        sys.exit(code)
    return code


def _shown(command: Sequence[str]) -> list[str]:
    return ["python" if part == sys.executable else part for part in command]
