"""Prepare code and packages in threads of the worker, before a driver needs them.

Fetching and installing can take minutes, and supervision does not wait for them: reconcile starts
the preparation (`begin`) and checks again until everything is in place (`take`). A failure is
reported once, for the application; the next requested start tries again.
"""

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import close_old_connections

from headgate_ground.files import lock_of, read_file, replace_file, take_lock, use_folder
from queries.domain.definitions.spec import ApplicationSpec
from queries.launchers.base import LaunchRefused
from queries.selectors import code as places
from queries.services.code.git_fetch import FetchFailed, fetch
from queries.services.code.packages import InstallFailed, install

logger = logging.getLogger(__name__)

#: Parallel preparations: each uses a core and much of the network bandwidth.
AT_ONCE = 2
_at_work: dict[Path, threading.Thread] = {}
_lock = threading.Lock()
_slots = threading.Semaphore(AT_ONCE)


@dataclass(frozen=True, slots=True)
class InPlace:
    """The folders of an application's code and packages on this host."""

    roots: tuple[str, ...] = ()  # of code, in import order
    packages: str = ""  # folder; "" if none


def take(spec: ApplicationSpec) -> InPlace:
    """Return the folders of the code and packages.

    Raises `LaunchRefused` if they could not be prepared, with the recorded failure, which it
    clears. While they are being prepared, raises it with `passing`.
    """
    reasons = [_pop_failure(target) for target in places.missing_places(spec)]
    if reason := " ".join(filter(None, reasons)):
        raise LaunchRefused(reason)
    if reasons:
        raise LaunchRefused("Its code or packages are being prepared.", passing=True)
    roots = places.roots_of(spec)
    if roots is None:
        assert spec.code is not None, "what lies in python_path is always named"
        raise LaunchRefused(
            f"The code {spec.code.upload[:19]} is not on host {settings.HEADGATE_HOST}. "
            "Upload it again, or share HEADGATE_HOME/code between the hosts."
        )
    folder = places.packages_folder(spec) if spec.packages.strip() else None
    code_root = places.root_of(spec.code)
    used = [path for path in (code_root.parent if code_root else None, folder) if path is not None]
    if not all(map(use_folder, used)):  # one has just been released
        raise LaunchRefused("Its code or packages are being prepared.", passing=True)
    return InPlace(roots, str(folder or ""))


def _pop_failure(target: Path) -> str:
    """Return and clear the reason why a place could not be prepared; "" if none is known."""
    marker = places.marker(target)
    reason = read_file(marker) or ""
    marker.unlink(missing_ok=True)
    return reason


def begin(spec: ApplicationSpec) -> None:
    """Start preparing the missing places, unless that is already in progress."""
    missing = places.missing_places(spec)
    for target in missing:
        is_code = spec.code is not None and target == places.git_note(spec.code)
        work = partial(fetch, spec.code) if spec.code and is_code else partial(install, spec)
        with _lock:
            if target in _at_work or places.marker(target).exists():
                continue
            thread = threading.Thread(
                target=_fill, args=(target, spec, work), name="code and packages", daemon=True
            )
            _at_work[target] = thread
        thread.start()


def wait(timeout_s: float) -> None:
    """Wait until nothing is being prepared, at most `timeout_s`."""
    with _lock:
        threads = list(_at_work.values())
    for thread in threads:
        thread.join(timeout_s)


def _fill(target: Path, spec: ApplicationSpec, work: Callable[[], None]) -> None:
    try:
        with _slots:
            _alone(target, spec, work)
    except Exception as error:  # thread boundary: the application reports the failure
        is_expected = isinstance(error, FetchFailed | InstallFailed)
        if not is_expected:
            logger.exception("code or packages could not be put into place")
        _note(
            target, str(error) if is_expected else f"An error in Headgate: {type(error).__name__}."
        )
    finally:
        close_old_connections()
        with _lock:
            _at_work.pop(target, None)


def _alone(target: Path, spec: ApplicationSpec, work: Callable[[], None]) -> None:
    """Do the work unless another process on this host is doing it or has done it."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = take_lock(lock_of(target))
    if lock is None:
        return
    try:
        if target in places.missing_places(spec):
            work()
            logger.info("put into place: %s", target.name[:12])
    finally:
        os.close(lock)


def _note(target: Path, reason: str) -> None:
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(places.marker(target), reason)
    except OSError:
        logger.exception("could not record a failure: %s", reason)
