"""Apply the isolation: around a driver, with its folders and secrets, and around our own tools.

What an isolated driver can access is determined once (`spec`), prepared before the driver starts
(`prepare`), and extended for each query that the driver is given later (`assign`).

They are not drivers: no user code runs in them as long as Spark's parser has no flaw. The same
setting decides: where a host isolates its drivers, it isolates these programs with bubblewrap, or
does not start them; where it does not, they run as the worker's account, and System shows that.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headgate_ground.files import read_file
from headgate_server import places
from queries.domain.hosts import IsolationChoice, Mode
from queries.domain.probes.questions import TASK
from queries.domain.protocol import ASSIGNMENT, SECRETS, SPEC, Assignment, DriverSpec
from queries.driver_folder import DriverFolder
from queries.launchers.base import LaunchRefused
from queries.launchers.process import environment, sighting
from queries.launchers.process.isolation import bubblewrap, limits, mounts, preparing
from queries.launchers.process.isolation.self_test import isolation


class DriverIsolation:
    """Sets up the isolation of one host's drivers."""

    def __init__(self, choose: Callable[[], IsolationChoice], *, secrets: Path) -> None:
        self.choice = choose
        self._secrets = secrets

    def spec(self, spec: DriverSpec, folder: DriverFolder) -> DriverSpec:
        """Return the spec with which a driver is started, including its isolation.

        Raises `LaunchRefused` if explicitly requested isolation is not available.
        """
        choice = self.choice()
        if choice.refused:
            raise LaunchRefused(choice.told, passing=choice.late)
        if choice.mode is Mode.NEITHER:
            return spec
        return replace(spec, walls=choice.mode, secrets_dir=str(folder.control / SECRETS))

    def prepare(self, spec: DriverSpec, folder: DriverFolder) -> None:
        """Prepare the folders that the driver needs and the secrets that it is allowed to use."""
        if not spec.walls:
            return
        preparing.prepare(spec, folder)
        task = read_file(folder.control / TASK)
        assignment = sighting.loaded(Assignment, folder.control / ASSIGNMENT)
        self._hand_over(spec, folder, assignment, [json.loads(task)] if task else [])

    def assign(self, folder: DriverFolder, assignment: Assignment) -> None:
        """Give a driver, even a running one, access to its next assignment's files and secrets."""
        spec = sighting.loaded(DriverSpec, folder.control / SPEC)
        if spec is not None and spec.walls:
            self._hand_over(spec, folder, assignment, [])

    def _hand_over(
        self,
        spec: DriverSpec,
        folder: DriverFolder,
        assignment: Assignment | None,
        more: list[Any],
    ) -> None:
        named = [asdict(spec), *more, *_allowed(assignment)]
        preparing.hand_over(named, secrets=self._secrets, folder=folder)


def _allowed(assignment: Assignment | None) -> list[dict[str, Any]]:
    """Return the assignment's definitions that are allowed to have the secrets they refer to."""
    entries = assignment.queries if assignment is not None else ()
    return [entry.spec for entry in entries if not entry.refused]


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
    """Start one of our programs, with pipes for its input, output and errors.

    `reads` are folders that it may read in addition to Python and Java; `hidden` are folders that
    it may not, if they are inside another. Raises `LaunchRefused` if this host has to isolate
    drivers and cannot, and OSError if there is no bubblewrap.
    """
    choice = isolation()
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
    """Return only the variables that our program needs to find Python, Java and Spark."""
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
