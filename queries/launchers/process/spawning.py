"""How a shim starts its driver: as its own child, as an account, or within bubblewrap's walls."""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from queries.domain.protocol import DRIVER_LOG, TMP, DriverSpec
from queries.domain.walls import Mode
from queries.driver_folder import DriverFolder
from queries.files import open_plain
from queries.launchers.process import environment, epoch_claims
from queries.launchers.process.walls.accounts import Account
from queries.launchers.process.walls.bubblewrap import NotStarted, Walls
from queries.launchers.process.walls.mounts import mounts


@dataclass(frozen=True, slots=True)
class Begun:
    """A driver that runs."""

    python_pid: int  # as it is out here; bubblewrap's own where the walls could not be raised
    at: str
    told: int  # the pipe on which it names its JVM
    walls: Walls | None = None  # around it, where its spec wants bubblewrap's


def spawn(folder: DriverFolder, spec: DriverSpec, claim: socket.socket) -> Begun:
    """Start the driver of a folder, and let it alone hold the claim on its epoch."""
    tmp = folder.own / TMP
    account = Account.of(spec.account) if spec.account else None
    tmp.mkdir(mode=0o700, exist_ok=True)
    log = open_plain(folder.own / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if account is not None:  # whose other processes may have been here: no link, of either kind
        os.chown(tmp, account.uid, account.gid, follow_symlinks=False)
        if os.fstat(log).st_nlink == 1:
            os.fchown(log, account.uid, account.gid)
    told, write = os.pipe()
    env = environment.for_driver(
        os.environ, allowlist=spec.env_allowlist, code_roots=spec.code_roots, tmp=tmp
    )
    env |= {
        environment.DIRECTORY: str(folder.root),
        environment.INSTALLATION: spec.installation,
        environment.HOST: spec.host,
        "HEADGATE_SHIM_FD": str(write),
        epoch_claims.CLAIM_FD: str(claim.fileno()),
    }
    at = datetime.now(UTC).isoformat()
    kind = "probes." if spec.probe else "scripts." if spec.script else ""
    program = f"queries.runtime.{kind}main"
    # -P: the working directory is no place to import from.
    argv = [sys.executable, "-P", "-m", program, str(folder.root)]
    if account is not None:
        argv, env = account.command(argv), {**env, **account.environment}
    passed = (write, claim.fileno())
    walls: Walls | None = None
    if spec.walls == Mode.BUBBLEWRAP:
        python_pid, walls = _begin_within(folder, spec, argv, env, log, passed)
    else:
        python_pid = _begin(folder, spec, argv, env, log, passed)
    claim.close()  # from here on it says that a process of the driver lives
    os.close(log)
    os.close(write)
    os.set_blocking(told, False)
    return Begun(python_pid, at, told, walls)


def _begin(
    folder: DriverFolder,
    spec: DriverSpec,
    argv: list[str],
    env: dict[str, str],
    log: int,
    passed: tuple[int, ...],
) -> int:
    """Start the driver as a child of this process; return its pid."""
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
    process.returncode = 0  # reaped by the shim, which keeps the whole wait status
    return process.pid


def _begin_within(
    folder: DriverFolder,
    spec: DriverSpec,
    argv: list[str],
    env: dict[str, str],
    log: int,
    passed: tuple[int, ...],
) -> tuple[int, Walls | None]:
    """Start the driver within bubblewrap's walls; return its pid as it is out here, and them.

    Where they cannot be raised, it is bubblewrap's own, and the driver's log has its reason.
    """
    walls = Walls.raise_around(
        argv,
        env={**env, "HOME": str(folder.own / TMP)},
        mounts=mounts(spec, folder, env),
        log=log,
        pass_fds=passed,
        close=passed,
        umask=spec.data_umask,
    )
    walls.process.returncode = 0
    try:
        return walls.begin(), walls
    except NotStarted:
        return walls.process.pid, None
