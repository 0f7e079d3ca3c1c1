"""Test drivers' isolation before it is used: an isolated process tries what an author might try.

The result of `walls()` is valid for the worker's whole lifetime. It is written to `walls.json` in
HEADGATE_HOME, for the pages and for `make run`.
"""

import contextlib
import errno
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from django.conf import settings

from headgate_ground.files import open_plain, read_file, read_tail, replace_file
from headgate_server import places
from queries import account_files
from queries.domain.protocol import DRIVER_LOG, TMP, Killer
from queries.domain.walls import Choice, Mode, choose
from queries.driver_folder import DriverFolder
from queries.launchers.base import LaunchRefused
from queries.launchers.process import environment, identities
from queries.launchers.process.walls import account_rights, bubblewrap, limits, mounts
from queries.launchers.process.walls.accounts import Account, Accounts, refuse_incapable
from queries.launchers.process.walls.trial import GIVEN, PASSED, Late, Missing, attempt, ground

logger = logging.getLogger(__name__)

FILE = "walls.json"
#: The trial takes a second; if it is late, the host is overloaded, which does not mean that it has
#: no walls.
PROVEN_WITHIN_S = 300
#: Seconds after a test that did not finish in which drivers are refused without another one.
AGAIN_S = 30
#: What a host runs out of for a while, as OSErrors and in the error messages of the test.
_USED_UP = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE),
        errno.EIO,
    }
)
#: bubblewrap's error message if the host rejects it -> what to do.
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
        " A container needs an unmasked /proc and no AppArmor profile that forbids mounts "
        "(docker-walls.yml).",
    ),
)


_once = threading.Lock()
_late: list[tuple[float, Choice]] = []  # the last test that did not finish, and until when it holds


def walls() -> Choice:
    """Return the isolation of this host's drivers; this process tests and records it once."""
    with _once:
        if _late and time.monotonic() < _late[-1][0]:
            return _late[-1][1]
        found = _walls()
        if found.late:  # not a result: the next start tests again
            _walls.cache_clear()
            _late[:] = [(time.monotonic() + AGAIN_S, found)]
        return found


@cache
def _walls() -> Choice:
    found = prove(settings.WALLS, settings.DRIVERS_DIR, accounts())
    holds = ""
    if found.mode is not Mode.NEITHER and not found.refused:
        account = found.mode is Mode.ACCOUNTS
        holds = limits.sentence(account=account, unfiltered=_unfiltered())
    found = replace(found, root=os.geteuid() == 0, holds=holds)
    logger.log(logging.ERROR if found.refused else logging.INFO, "%s", found.told)
    with contextlib.suppress(OSError):  # a full disk costs only a line on a page
        replace_file(settings.HEADGATE_HOME / FILE, json.dumps(asdict(found)))
    return found


def accounts() -> Accounts:
    """Return the accounts under which this host's drivers can run."""
    return Accounts(tuple(settings.WALLS_ACCOUNTS), settings.HEADGATE_HOME)


def connect() -> None:
    """Set the accounts whose folders this process must not trust, regardless of the launcher."""
    account_files.know(lambda: accounts().uids())


def known() -> Choice | None:
    """Return the isolation recorded by this host's worker; None if there has been no worker yet."""
    try:
        text = read_file(settings.HEADGATE_HOME / FILE)
        held = json.loads(text) if text else None
        return Choice(**{**held, "mode": Mode(held["mode"])}) if held else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def prove(asked: str, drivers: Path, accounts: Accounts | None = None) -> Choice:
    """Return the requested isolation, or the best available, tested in a folder of drivers."""
    if asked == Mode.NEITHER:
        return choose(asked)
    try:
        if asked == Mode.ACCOUNTS:
            _try_accounts(accounts or Accounts((), drivers.parent), drivers)
        else:
            _try_bubblewrap(drivers)
    except Late as error:
        return choose(asked, str(error), late=True)
    except (Missing, LaunchRefused) as error:
        return choose(asked, str(error))
    except OSError as error:
        return choose(asked, f"{error}.", late=error.errno in _USED_UP)
    return choose(asked)


def _try_bubblewrap(drivers: Path) -> None:
    if shutil.which(bubblewrap.PROGRAM) is None:
        raise Missing("bubblewrap is not installed; it is in the bubblewrap package.")
    with ground(drivers) as (folder, spec, hidden):
        env = environment.for_driver(os.environ, allowlist=(), code_roots=(), tmp=folder.own / TMP)
        log = open_plain(
            folder.own / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, within=folder.root
        )
        within = bubblewrap.Walls.raise_around(
            attempt(
                folder, [hidden], filtered=not _unfiltered(), limits=limits.limits(account=False)
            ),
            env=env,
            mounts=mounts.mounts(spec, folder, env),
            log=log,
        )
        os.close(log)
        status: int | None = None
        try:
            python = within.begin()
            if not identities.wait_end(python, identities.start_time(python), PROVEN_WITHIN_S):
                raise Late(f"the trial took longer than {PROVEN_WITHIN_S} s.")
            status = within.status_of(python)
        except bubblewrap.NotStarted as error:
            if error.killed is Killer.WALLS_LATE:
                raise Late(f"bubblewrap took longer than {bubblewrap.STARTS_WITHIN_S} s.") from None
        finally:
            identities.kill_and_wait(within.init_pid, within.init_start, PROVEN_WITHIN_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                within.process.wait(PROVEN_WITHIN_S)
            os.close(within.told)
        _judge(status, folder, killed=status is not None and os.WIFSIGNALED(status))


def _try_accounts(accounts: Accounts, drivers: Path) -> None:
    """Test that the first account is isolated; check that every account can reach our program."""
    refuse_incapable()
    known = accounts.all()
    tried, another = known[0], known[-1]
    with ground(drivers) as (folder, _, hidden):
        account_rights.open_folders(folder, tried, drivers)
        others = hidden.with_name("others")
        others.mkdir(mode=0o700)
        for given, account in ((hidden.with_name(GIVEN), tried), (others, another)):
            account_files.give(given, account.uid, account.gid)
        for account in known:
            insist_on_the_way(account)
        closed = [hidden, *([others] if another != tried else []), *_closed(accounts.home)]
        bounds = limits.limits(account=True)
        wanted = attempt(folder, closed, rights=True, filtered=not _unfiltered(), limits=bounds)
        status = _status_as(tried, wanted, folder)
        _judge(status, folder, killed=status < 0)


def _unfiltered() -> str:
    """Return why system calls cannot be filtered here; "" if they can."""
    calls, why = limits.system_call_filter()
    if calls is not None:
        os.close(calls)
    return why


def _closed(home: Path) -> list[Path]:
    """Return the paths no account is allowed to read: HEADGATE_HOME, its files, our folders."""
    files = (each for each in home.iterdir() if each.is_file())
    named = "SECRETS_DIR DRIVERS_DIR CHECKPOINTS_DIR CODE_DIR PACKAGES_DIR"
    ours = [getattr(settings, name) for name in named.split()]
    return [home, *files, *ours]


def _status_as(account: Account, argv: list[str], folder: DriverFolder) -> int:
    """Run a command in the same way as an account's driver; return its exit code."""
    env = environment.for_driver(os.environ, allowlist=(), code_roots=(), tmp=folder.own / TMP)
    log = open_plain(
        folder.own / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, within=folder.root
    )
    calls, _ = limits.system_call_filter()
    try:
        return subprocess.run(
            account.command(limits.confined(argv, calls)),
            pass_fds=() if calls is None else (calls,),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder.own,
            env={**env, **account.environment},
            timeout=PROVEN_WITHIN_S,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        raise Late(f"the trial took longer than {PROVEN_WITHIN_S} s.") from None
    finally:
        os.close(log)
        if calls is not None:
            os.close(calls)


def insist_on_the_way(account: Account) -> None:
    """Raise `Missing` if an account cannot reach our program, Python or Java."""
    programs = (sys.executable, os.path.realpath(sys.executable), environment.java(os.environ))
    ways = [places.ROOT / "queries", *(Path(each) for each in programs if each)]
    # "any" does not exist, and finding that out requires access to the folder.
    ways += [Path(folder) / "any" for folder in sys.path if os.path.isdir(folder)]
    for way in ways:
        if (blocked := account_rights.unreachable(way, account)) is not None:
            raise Missing(account_rights.not_through(blocked, account))


def _judge(status: int | None, folder: DriverFolder, *, killed: bool) -> None:
    said = read_tail(folder.own / DRIVER_LOG, 2000, within=folder.root).strip().rpartition("\n")[2]
    if killed:  # by the kernel, for its memory, or by somebody
        raise Late("the trial was killed.")
    if any(os.strerror(code) in said for code in _USED_UP):
        raise Late(f"the trial failed: {said.rstrip('.')}.")
    if status != 0 or said != PASSED:
        ways = (way for words, way in _WAYS_OUT if any(word in said for word in words))
        raise Missing(f"the trial failed: {said.rstrip('.') or 'no output'}.{next(ways, '')}")
