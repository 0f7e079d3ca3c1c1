"""What an author of Python may try from within a driver; runs there, as a query's function.

Each attack tells "done" where nothing stopped it, else the error that did.
"""

import ctypes
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PTRACE_ATTACH, _PTRACE_DETACH = 16, 17  # linux/ptrace.h


def attack(spark: Any, params: dict[str, str]) -> Any:
    """Try everything, write down what came of it, and be an ordinary query."""
    home = Path(params["home"])
    worker, neighbour = int(params["worker"]), int(params["neighbour"])
    others = home / "checkpoints" / "other"
    driver = Path(params["driver"])
    attacks: dict[str, Callable[[], object]] = {
        "reads secret_key": lambda: (home / "secret_key").read_text(),
        "reads the database": lambda: (home / "headgate.sqlite3").read_bytes(),
        "reads another application's secret": lambda: (home / "secrets/theirs").read_text(),
        "reads another driver's log": lambda: (home / "drivers/other/7/own/driver.log").read_text(),
        "reads another checkpoint": lambda: (others / "offsets/0").read_text(),
        "reads the worker's environment": lambda: Path(f"/proc/{worker}/environ").read_bytes(),
        "signals the worker": lambda: os.kill(worker, 0),
        "ends a neighbour": lambda: os.kill(neighbour, signal.SIGTERM),
        "traces the worker": lambda: _trace(worker),
        "replaces a control file": lambda: _replace(driver / "control/assignment.json"),
        "replaces current.json": lambda: _replace(driver.parent / "control/current.json"),
        "replaces another's lock": lambda: _replace(home / "checkpoints/.headgate/other.held/lock"),
        "replaces another's owner": lambda: _replace(
            home / "checkpoints/.headgate/other.held/owner.json"
        ),
        "plants a link for the log": lambda: _plant(home, driver / "own/driver.log"),
        "reads its own secret": lambda: (Path(params["secrets"]) / "ours").read_text(),
    }
    found = {name: _try(act) for name, act in attacks.items()}
    draft = Path(params["found"] + ".draft")
    draft.write_text(json.dumps(found))
    draft.rename(params["found"])
    return spark.readStream.format("rate").option("rowsPerSecond", "5").load()


def _try(act: Callable[[], object]) -> str:
    try:
        act()
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def _replace(path: Path) -> None:
    draft = path.with_name("draft")
    draft.write_text(path.read_text())  # the same, so that the test can go on
    draft.rename(path)


def _plant(home: Path, log: Path) -> None:
    """Let our own log be a link; the driver's output goes on to the file that it has open."""
    log.rename(log.with_name("driver.log.1"))
    log.symlink_to(home / "secret_key")


def _trace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long,) * 4
    if libc.ptrace(_PTRACE_ATTACH, pid, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, 0x40000000)  # __WALL; until it has stopped, or it could not be let go
    libc.ptrace(_PTRACE_DETACH, pid, 0, 0)
