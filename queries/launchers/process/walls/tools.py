"""Start our own programs that read an author's text: within walls, and without a network.

They are not drivers: nobody's code runs in them as long as Spark's parser has no flaw. The same
setting decides: where a host isolates its drivers, it isolates these programs with bubblewrap, or
does not start them; where it does not, they run as the worker's account, and System shows that.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from headgate_server import places
from queries.domain.walls import Mode
from queries.launchers.base import LaunchRefused
from queries.launchers.process import environment
from queries.launchers.process.walls import bubblewrap, limits, mounts
from queries.launchers.process.walls.proven import walls

#: A driver's namespaces, and one for the network, which has only a loopback of its own. bubblewrap
#: reaps the processes, and ends with the worker's thread that started it.
_NAMESPACES = (
    *(option for option in bubblewrap.NAMESPACES if option != "--as-pid-1"),
    *("--unshare-net", "--die-with-parent"),
    *("--hostname", "localhost"),  # Spark looks up its host's name, and Java knows only this one
)


def start(
    argv: Sequence[str], *, reads: Sequence[Path] = (), hidden: Iterable[Path] = ()
) -> subprocess.Popen[bytes]:
    """Start a program of ours, with pipes for its input, output and errors.

    `reads` are folders that it may read in addition to Python and Java; `hidden` are folders that
    it may not, if they are inside another. Raises `LaunchRefused` if this host has to isolate
    drivers and cannot, and OSError if there is no bubblewrap.
    """
    choice = walls()
    if choice.refused:
        raise LaunchRefused(choice.told)
    env = _environ()
    if choice.mode is Mode.NEITHER:
        return _open(argv, env, ())
    limits_json = json.dumps(limits.limits())
    argv = [sys.executable, "-I", "-S", str(limits.INIT), "become", limits_json, *argv]
    options = [*_NAMESPACES, *mounts.tool_mounts(reads, hidden, env)]
    calls, _ = limits.system_call_filter()
    passed = () if calls is None else (calls,)
    try:
        if calls is not None:
            options += ["--seccomp", str(calls)]
        return _open([bubblewrap.PROGRAM, *options, "--", *argv], env, passed)
    finally:
        for descriptor in passed:
            os.close(descriptor)


def _environ() -> dict[str, str]:
    """Return what a program of ours needs to find Python, Java and Spark, and nothing else."""
    named = {"PATH", "LANG", "TZ", "JAVA_HOME", "SPARK_HOME"}
    variables = {
        name: value for name, value in environment.passed(os.environ, ()).items() if name in named
    }
    return {"LANG": "C.UTF-8", **variables, "PYTHONPATH": ":".join(places.import_path())}


def _open(
    argv: Sequence[str], env: dict[str, str], passed: tuple[int, ...]
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd="/",
        pass_fds=passed,
        start_new_session=True,  # Ctrl-C is for the worker, which closes our input
    )
