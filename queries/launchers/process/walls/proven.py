"""Prove walls before they are used: a process within them tries what an author might.

`walls()` is the worker's answer for as long as it lives. What it has found is left in
`walls.json` in HEADGATE_HOME, for pages and for `make run`.
"""

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from django.conf import settings

from queries.domain.protocol import DRIVER_LOG, TMP, DriverSpec
from queries.domain.walls import Choice, Mode, choose
from queries.driver_folder import DriverFolder
from queries.files import open_plain, read_file, read_tail, replace_file
from queries.launchers.process import environment, identities
from queries.launchers.process.walls import bubblewrap, mounts

logger = logging.getLogger(__name__)

FILE = "walls.json"
PROVEN_WITHIN_S = 30
_PASSED = "within walls"
_GIVEN = "given"

#: What the process within is to find: its own folder and a data root can be written, all else is
#: out of reach.
_ATTEMPT = f"""
import os, sys
import pyspark, queries.domain.protocol
own, given, control, hidden, worker, started = sys.argv[1:]
for folder in (own, given):
    open(f"{{folder}}/written", "w").close()
def stopped(act):
    try:
        act()
    except OSError:
        return
    sys.exit(f"it was not stopped from {{act.__doc__}}")
def is_another():
    "Whether the number belongs to a process in here: the worker's own may be as low as 1."
    try:
        stat = open(f"/proc/{{worker}}/stat").read()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[19] != started
def read():
    "reading a file of the control plane"
    open(hidden).read()
def write():
    "writing its control files"
    open(f"{{control}}/written", "w")
def signal():
    "signalling the worker"
    os.kill(int(worker), 0)
    if is_another():
        raise ProcessLookupError
def environ():
    "reading the worker's environment"
    open(f"/proc/{{worker}}/environ").read()
    if is_another():
        raise ProcessLookupError
for act in (read, write, signal, environ):
    stopped(act)
print({_PASSED!r})
"""


#: What bubblewrap says where the host refuses it -> what to do.
_WAYS_OUT = (
    (
        ("new namespace", "uid map"),
        " User namespaces are needed: see kernel.unprivileged_userns_clone, "
        "kernel.apparmor_restrict_unprivileged_userns and user.max_user_namespaces. A container "
        "needs a seccomp profile that allows them (docker-walls.yml).",
    ),
    (
        ("Unknown option",),
        " bubblewrap is too old: 0.10 is needed, or 0.8 with Debian's security updates.",
    ),
    (
        ("mount proc", "Failed to make / slave", "max_user_namespaces"),
        " A container needs a /proc of which nothing is masked, and no AppArmor profile that "
        "forbids mounts (docker-walls.yml).",
    ),
)


class Missing(Exception):
    """This host cannot give bubblewrap's walls; the message says what it lacks."""


_once = threading.Lock()


def walls() -> Choice:
    """Return the walls of this host's drivers, proven once by this process, and write them down."""
    with _once:
        return _walls()


@cache
def _walls() -> Choice:
    found = prove(settings.WALLS, settings.DRIVERS_DIR)
    logger.log(logging.ERROR if found.refused else logging.INFO, "%s", found.told)
    with contextlib.suppress(OSError):  # a full disk hides a line of a page
        replace_file(settings.HEADGATE_HOME / FILE, json.dumps(asdict(found)))
    return found


def known() -> Choice | None:
    """Return what this host's worker has written down; None before there was one."""
    try:
        text = read_file(settings.HEADGATE_HOME / FILE)
        held = json.loads(text) if text else None
        return Choice(**{**held, "mode": Mode(held["mode"])}) if held else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def prove(asked: str, drivers: Path) -> Choice:
    """Return the walls that are asked for, or the best there are, tried in a folder of drivers."""
    if asked == Mode.NEITHER:
        return choose(asked)
    try:
        _try_bubblewrap(drivers)
    except (Missing, OSError) as error:
        return choose(asked, str(error))
    return choose(asked)


def _try_bubblewrap(drivers: Path) -> None:
    if shutil.which(bubblewrap.PROGRAM) is None:
        raise Missing("bubblewrap is not installed; its package is called bubblewrap.")
    with _ground(drivers) as (folder, spec, hidden):
        env = environment.for_driver(os.environ, allowlist=(), code_roots=(), tmp=folder.own / TMP)
        log = open_plain(folder.own / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        within = bubblewrap.Walls.raise_around(
            _attempt(folder, hidden), env=env, mounts=mounts.mounts(spec, folder, env), log=log
        )
        os.close(log)
        status: int | None = None
        try:
            python = within.begin()
            identities.wait_end(python, identities.start_time(python), PROVEN_WITHIN_S)
            status = within.status_of(python)
        except bubblewrap.NotStarted:
            pass
        finally:
            identities.kill_and_wait(within.init_pid, within.init_start, PROVEN_WITHIN_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                within.process.wait(PROVEN_WITHIN_S)
            os.close(within.told)
        _judge(status, folder)


def _judge(status: int | None, folder: DriverFolder) -> None:
    said = read_tail(folder.own / DRIVER_LOG, 2000).strip().rpartition("\n")[2]
    if status != 0 or said != _PASSED:
        ways = (way for words, way in _WAYS_OUT if any(word in said for word in words))
        raise Missing(f"the trial failed: {said.rstrip('.') or 'it said nothing'}.{next(ways, '')}")


def _attempt(folder: DriverFolder, hidden: Path) -> list[str]:
    worker = os.getpid()
    given = hidden.with_name(_GIVEN)
    told = (folder.own, given, folder.control, hidden, worker, identities.start_time(worker))
    return [sys.executable, "-P", "-c", _ATTEMPT, *map(str, told)]


@contextlib.contextmanager
def _ground(drivers: Path) -> Iterator[tuple[DriverFolder, DriverSpec, Path]]:
    """Yield the folder and spec of a driver to be tried, and a file that it must not read."""
    drivers.mkdir(mode=0o700, parents=True, exist_ok=True)
    trial = Path(tempfile.mkdtemp(prefix=".walls-", dir=drivers.resolve()))
    try:
        folder = DriverFolder.make(trial / "1")
        (folder.own / TMP).mkdir(mode=0o700)
        hidden = trial / "hidden"
        hidden.write_text("not for drivers")
        (trial / _GIVEN).mkdir(mode=0o700)
        home, given = drivers.parent.resolve().as_uri(), (trial / _GIVEN).as_uri()
        yield folder, replace(_SPEC, own_folders=(home,), data_roots=(given,)), hidden
    finally:
        shutil.rmtree(trial, ignore_errors=True)


_SPEC = DriverSpec(
    driver=0,
    epoch=0,
    application="",
    installation="",
    host="",
    master="",
    memory="",
    conf={},
    env={},
    code_roots=(),
    code_sha256="",
    scheduler_mode="",
    listeners=(),
    redis_url="",
    stream="",
)
