"""Run commands, saying which, and leave with the code of the first that failed."""

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence


def run(*command: str, go_on: bool = False) -> int:
    """Run a command and return its code; leave with it where it is not 0, unless `go_on`."""
    sys.stdout.write(f"\n$ {shlex.join(_shown(command))}\n")
    sys.stdout.flush()
    code = subprocess.call(command)
    if code and not go_on:
        sys.exit(code)
    return code


def run_beside(first: Sequence[str], second: Sequence[str]) -> None:
    """Run two commands at once; the second one's output follows the first one's.

    Leaves with the code of one that failed. Whatever ends this process ends both.
    """
    sys.stdout.write(f"\n$ {shlex.join(_shown(first))} &\n$ {shlex.join(_shown(second))}\n")
    sys.stdout.flush()
    with tempfile.TemporaryFile("w+") as output:
        beside = subprocess.Popen(second, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = subprocess.call(first)
            beside_code = beside.wait()
        except BaseException:
            beside.terminate()
            beside.wait()
            raise
        sys.stdout.write(f"\n$ {shlex.join(_shown(second))}\n")
        output.seek(0)
        shutil.copyfileobj(output, sys.stdout)
        sys.stdout.flush()
    if code or beside_code:
        sys.exit(code or beside_code)


def _shown(command: Sequence[str]) -> list[str]:
    return ["python" if part == sys.executable else part for part in command]
