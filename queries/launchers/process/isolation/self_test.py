"""Test drivers' isolation before it is used: an isolated process attempts what an author could.

The result of `isolation()` is valid for the worker's whole lifetime, and is recorded for the pages
(`queries.launchers.recorded_isolation`).
"""

import contextlib
import errno
import logging
import os
import shutil
import subprocess
import threading
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

from django.conf import settings

from headgate_ground import identities
from headgate_ground.files import open_plain, read_tail
from queries.domain.hosts import IsolationChoice, Mode, choose
from queries.domain.protocol import DRIVER_LOG, TMP, Killer
from queries.driver_folder import DriverFolder
from queries.launchers.process import environment
from queries.launchers.process.isolation import bubblewrap, limits, mounts
from queries.launchers.process.isolation.trial import (
    PASSED,
    IsolationMissing,
    TrialInconclusive,
    attempt,
    ground,
)
from queries.launchers.recorded_isolation import record_isolation

logger = logging.getLogger(__name__)

#: The trial takes a second; if it is late, the host is overloaded, which does not mean that it has
#: no isolation.
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
        "needs a seccomp profile that allows them (docker-isolation.yml).",
    ),
    (
        ("Unknown option",),
        " bubblewrap is too old: 0.10 is needed, or 0.8 with Debian's security updates.",
    ),
    (
        ("mount proc", "Failed to make / slave", "max_user_namespaces"),
        " A container needs an unmasked /proc and no AppArmor profile that forbids mounts "
        "(docker-isolation.yml).",
    ),
)


_once = threading.Lock()
_late: list[
    tuple[float, IsolationChoice]
] = []  # the last test that did not finish, and until when it holds


def isolation() -> IsolationChoice:
    """Return the isolation of this host's drivers; this process tests and records it once."""
    with _once:
        if _late and time.monotonic() < _late[-1][0]:
            return _late[-1][1]
        choice = _isolation()
        if choice.late:  # not a result: the next start tests again
            _isolation.cache_clear()
            _late[:] = [(time.monotonic() + AGAIN_S, choice)]
        return choice


@cache
def _isolation() -> IsolationChoice:
    choice = prove(settings.ISOLATION, settings.DRIVERS_DIR)
    isolated = choice.mode is not Mode.NEITHER and not choice.refused
    holds = limits.sentence(unfiltered=_unfiltered()) if isolated else ""
    choice = replace(choice, root=os.geteuid() == 0, holds=holds)
    logger.log(logging.ERROR if choice.refused else logging.INFO, "%s", choice.told)
    with contextlib.suppress(OSError):  # a full disk costs only a line on a page
        record_isolation(choice)
    return choice


def prove(mode: str, drivers: Path) -> IsolationChoice:
    """Return the requested isolation, or the best available, tested in a folder of drivers."""
    if mode == Mode.NEITHER:
        return choose(mode)
    try:
        _try_bubblewrap(drivers)
    except TrialInconclusive as error:
        return choose(mode, str(error), late=True)
    except IsolationMissing as error:
        return choose(mode, str(error))
    except OSError as error:
        return choose(mode, f"{error}.", late=error.errno in _USED_UP)
    return choose(mode)


def _try_bubblewrap(drivers: Path) -> None:
    if shutil.which(bubblewrap.PROGRAM) is None:
        raise IsolationMissing("bubblewrap is not installed; it is in the bubblewrap package.")
    with ground(drivers) as (folder, spec, hidden):
        env = environment.for_driver(os.environ, allowlist=(), code_roots=(), tmp=folder.own / TMP)
        log = open_plain(
            folder.own / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, within=folder.root
        )
        within = bubblewrap.Sandbox.apply(
            attempt(folder, [hidden], filtered=not _unfiltered(), limits=limits.limits()),
            env=env,
            mounts=mounts.mounts(spec, folder, env),
            log=log,
        )
        os.close(log)
        status: int | None = None
        try:
            python = within.begin()
            if not identities.wait_end(python, identities.start_time(python), PROVEN_WITHIN_S):
                raise TrialInconclusive(f"the trial took longer than {PROVEN_WITHIN_S} s.")
            status = within.status_of(python)
        except bubblewrap.NotStarted as error:
            if error.killed is Killer.ISOLATION_LATE:
                raise TrialInconclusive(
                    f"bubblewrap took longer than {bubblewrap.STARTS_WITHIN_S} s."
                ) from None
        finally:
            identities.kill_and_wait(within.init_pid, within.init_start, PROVEN_WITHIN_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                within.process.wait(PROVEN_WITHIN_S)
            os.close(within.report_pipe)
        _judge(status, folder, killed=status is not None and os.WIFSIGNALED(status))


def _unfiltered() -> str:
    """Return why system calls cannot be filtered here; "" if they can."""
    calls, why = limits.system_call_filter()
    if calls is not None:
        os.close(calls)
    return why


def _judge(status: int | None, folder: DriverFolder, *, killed: bool) -> None:
    output = (
        read_tail(folder.own / DRIVER_LOG, 2000, within=folder.root).strip().rpartition("\n")[2]
    )
    if killed:  # by the kernel, for its memory, or by somebody
        raise TrialInconclusive("the trial was killed.")
    if any(os.strerror(code) in output for code in _USED_UP):
        raise TrialInconclusive(f"the trial failed: {output.rstrip('.')}.")
    if status != 0 or output != PASSED:
        ways = (way for words, way in _WAYS_OUT if any(word in output for word in words))
        raise IsolationMissing(
            f"the trial failed: {output.rstrip('.') or 'no output'}.{next(ways, '')}"
        )
