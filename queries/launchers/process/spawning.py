"""Start a shim's driver: as the shim's child, or in a sandbox."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from headgate_ground.files import open_plain, read_tail
from headgate_ground.untrusted import make_folder
from queries.domain.protocol import DRIVER_LOG, SHIM_LOG, TMP, DriverSpec, Killer
from queries.driver_folder import DriverFolder
from queries.launchers.process import environment, epoch_claims
from queries.launchers.process.isolation.bubblewrap import NotStarted, Sandbox
from queries.launchers.process.isolation.mounts import mounts


@dataclass(frozen=True, slots=True)
class Begun:
    """A started driver."""

    python_pid: int  # as seen from outside; bubblewrap's own PID if its sandbox could not be set up
    at: str
    report_pipe: int  # the pipe through which it reports its JVM's PID
    sandbox: Sandbox | None = None  # around it, if its spec requires bubblewrap's
    killed: Killer = Killer.NOBODY  # why there is no driver, if its sandbox could not be set up


SHIM = "queries.launchers.process.shim"
#: Seconds for the shim to lock its directory. It needs about 0.2 s, and a hundred times as long on
#: a busy host, where killing it would only add another start.
SHIM_TAKES_S = 120


class ShimFailed(Exception):
    """The shim did not take over; the message says why."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code  # it exited with; None: it did not


def start_shim(directory: Path, env: Mapping[str, str]) -> None:
    """Start the shim of a driver's directory; return once it holds the folder's lock.

    Its output is in the folder's log. The started process ends as soon as its child, the actual
    shim, holds the lock. Raises `ShimFailed`, and OSError.
    """
    log_file = DriverFolder.of(directory).control / SHIM_LOG
    log = open_plain(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", SHIM, str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env=env,
            start_new_session=True,
        )
    finally:
        os.close(log)
    try:
        code = process.wait(SHIM_TAKES_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise ShimFailed(f"the shim did not take over within {SHIM_TAKES_S} s") from None
    if code != 0:
        reason = read_tail(log_file, 2000).strip().rpartition("\n")[2]
        raise ShimFailed(f"the shim exited with code {code}: {reason or 'no reason given'}", code)


def spawn(folder: DriverFolder, spec: DriverSpec, claim: socket.socket) -> Begun:
    """Start the driver for a folder, and leave the claim on its epoch to the driver only."""
    tmp = folder.own / TMP
    os.close(make_folder(tmp))
    log = open_plain(
        folder.own / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, within=folder.root
    )
    report_pipe, write = os.pipe()
    env = environment.for_driver(
        os.environ,
        allowlist=spec.env_allowlist,
        code_roots=spec.code_roots,
        tmp=tmp,
        spark=spec.spark,
        master=spec.master,
    )
    env |= {
        environment.DIRECTORY: str(folder.root),
        environment.INSTALLATION: spec.installation,
        environment.HOST: spec.host,
        environment.CLASS_ARCHIVE: os.environ.get(environment.CLASS_ARCHIVE, ""),
        "HEADGATE_SHIM_FD": str(write),
        epoch_claims.CLAIM_FD: str(claim.fileno()),
    }
    at = datetime.now(UTC).isoformat()
    kind = "probes." if spec.probe else "scripts." if spec.script else ""
    program = ["queries.runtime.entry", f"queries.runtime.{kind}main"]
    if spec.storage_idle_s:
        program = ["queries.runtime.jvms.storage"]
    # -P: nothing may be imported from the working directory.
    argv = [sys.executable, "-P", "-m", *program, str(folder.root)]
    passed = (write, claim.fileno())
    sandbox: Sandbox | None = None
    killed = Killer.NOBODY
    if spec.walls:
        python_pid, sandbox, killed = _begin_within(folder, spec, argv, env, log, passed)
    else:
        python_pid = _begin(folder, spec, argv, env, log, passed)
    claim.close()  # from here on, the claim means that a process of the driver is alive
    os.close(log)
    os.close(write)
    os.set_blocking(report_pipe, False)
    return Begun(python_pid, at, report_pipe, sandbox, killed)


def _begin(
    folder: DriverFolder,
    spec: DriverSpec,
    argv: list[str],
    env: dict[str, str],
    log: int,
    passed: tuple[int, ...],
) -> int:
    """Start the driver as a child of this process; return its PID."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=folder.own,
        env=env,
        pass_fds=passed,
        start_new_session=True,
        umask=spec.data_umask,
    )
    process.returncode = 0  # reaped by the shim, which keeps the full wait status
    return process.pid


def _begin_within(
    folder: DriverFolder,
    spec: DriverSpec,
    argv: list[str],
    env: dict[str, str],
    log: int,
    passed: tuple[int, ...],
) -> tuple[int, Sandbox | None, Killer]:
    """Start the driver in the bubblewrap sandbox; return its outer PID, and the sandbox.

    If the sandbox cannot be set up, the PID is bubblewrap's own, the last value says so, and the
    driver's log contains bubblewrap's reason.
    """
    sandbox = Sandbox.apply(
        argv,
        env={**env, "HOME": str(folder.own / TMP)},
        mounts=mounts(spec, folder, env),
        log=log,
        pass_fds=passed,
        close=passed,
        umask=spec.data_umask,
    )
    sandbox.process.returncode = 0
    try:
        return sandbox.begin(), sandbox, Killer.NOBODY
    except NotStarted as error:
        return sandbox.process.pid, None, error.killed
