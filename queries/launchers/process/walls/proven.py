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
import threading
from dataclasses import asdict
from functools import cache
from pathlib import Path

from django.conf import settings

from queries import acting
from queries.domain.protocol import DRIVER_LOG, TMP
from queries.domain.walls import Choice, Mode, choose
from queries.driver_folder import DriverFolder
from queries.files import open_plain, read_file, read_tail, replace_file
from queries.launchers.base import LaunchRefused
from queries.launchers.process import environment, identities
from queries.launchers.process.walls import bubblewrap, giving, mounts
from queries.launchers.process.walls.accounts import Account, Accounts, refuse_incapable
from queries.launchers.process.walls.trial import GIVEN, PASSED, Missing, attempt, ground

logger = logging.getLogger(__name__)

FILE = "walls.json"
PROVEN_WITHIN_S = 30
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


_once = threading.Lock()


def walls() -> Choice:
    """Return the walls of this host's drivers, proven once by this process, and write them down."""
    with _once:
        return _walls()


@cache
def _walls() -> Choice:
    found = prove(settings.WALLS, settings.DRIVERS_DIR, accounts())
    logger.log(logging.ERROR if found.refused else logging.INFO, "%s", found.told)
    with contextlib.suppress(OSError):  # a full disk hides a line of a page
        replace_file(settings.HEADGATE_HOME / FILE, json.dumps(asdict(found)))
    return found


def accounts() -> Accounts:
    """Return the accounts that this host's drivers may run as."""
    return Accounts(tuple(settings.WALLS_ACCOUNTS), settings.HEADGATE_HOME)


def connect() -> None:
    """Let this process know whose folders it must not trust, whichever launcher it uses."""
    acting.know(lambda: accounts().uids())


def known() -> Choice | None:
    """Return what this host's worker has written down; None before there was one."""
    try:
        text = read_file(settings.HEADGATE_HOME / FILE)
        held = json.loads(text) if text else None
        return Choice(**{**held, "mode": Mode(held["mode"])}) if held else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def prove(asked: str, drivers: Path, accounts: Accounts | None = None) -> Choice:
    """Return the walls that are asked for, or the best there are, tried in a folder of drivers."""
    if asked == Mode.NEITHER:
        return choose(asked)
    try:
        if asked == Mode.ACCOUNTS:
            _try_accounts(accounts or Accounts((), drivers.parent), drivers)
        else:
            _try_bubblewrap(drivers)
    except (Missing, LaunchRefused, OSError) as error:
        return choose(asked, str(error))
    return choose(asked)


def _try_bubblewrap(drivers: Path) -> None:
    if shutil.which(bubblewrap.PROGRAM) is None:
        raise Missing("bubblewrap is not installed; its package is called bubblewrap.")
    with ground(drivers) as (folder, spec, hidden):
        env = environment.for_driver(os.environ, allowlist=(), code_roots=(), tmp=folder.own / TMP)
        log = open_plain(folder.own / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        within = bubblewrap.Walls.raise_around(
            attempt(folder, [hidden]), env=env, mounts=mounts.mounts(spec, folder, env), log=log
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


def _try_accounts(accounts: Accounts, drivers: Path) -> None:
    """Try the first account, with what it must not reach; look whether all find the way."""
    refuse_incapable()
    known = accounts.all()
    tried, another = known[0], known[-1]
    with ground(drivers) as (folder, _, hidden):
        giving.open_folders(folder, tried, drivers)
        others = hidden.with_name("others")
        others.mkdir(mode=0o700)
        for given, account in ((hidden.with_name(GIVEN), tried), (others, another)):
            acting.give(given, account.uid, account.gid)
        for account in known:
            insist_on_the_way(account)
        closed = [hidden, *([others] if another != tried else []), *_closed(accounts.home)]
        _judge(_status_as(tried, attempt(folder, closed, rights=True), folder), folder)


def _closed(home: Path) -> list[Path]:
    """Return what no account may read or list: HEADGATE_HOME, its files and its folders for us."""
    files = (each for each in home.iterdir() if each.is_file())
    named = "SECRETS_DIR DRIVERS_DIR CHECKPOINTS_DIR CODE_DIR PACKAGES_DIR"
    ours = [getattr(settings, name) for name in named.split()]
    return [home, *files, *ours]


def _status_as(account: Account, argv: list[str], folder: DriverFolder) -> int:
    """Run a command as a driver of an account is run; return its code."""
    env = environment.for_driver(os.environ, allowlist=(), code_roots=(), tmp=folder.own / TMP)
    log = open_plain(folder.own / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        return subprocess.run(
            account.command(argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder.own,
            env={**env, **account.environment},
            timeout=PROVEN_WITHIN_S,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        raise Missing(f"the trial took longer than {PROVEN_WITHIN_S} s.") from None
    finally:
        os.close(log)


def insist_on_the_way(account: Account) -> None:
    """Raise `Missing` where an account does not get to our program, to Python or to Java."""
    programs = (sys.executable, os.path.realpath(sys.executable), environment.java(os.environ))
    places = [environment.REPOSITORY / "queries", *(Path(each) for each in programs if each)]
    # "any" is not there, and to find that out one has to get into the folder.
    places += [Path(folder) / "any" for folder in sys.path if os.path.isdir(folder)]
    for place in places:
        if (blocked := giving.unreachable(place, account)) is not None:
            raise Missing(giving.not_through(blocked, account))


def _judge(status: int | None, folder: DriverFolder) -> None:
    said = read_tail(folder.own / DRIVER_LOG, 2000).strip().rpartition("\n")[2]
    if status != 0 or said != PASSED:
        ways = (way for words, way in _WAYS_OUT if any(word in said for word in words))
        raise Missing(f"the trial failed: {said.rstrip('.') or 'it said nothing'}.{next(ways, '')}")
