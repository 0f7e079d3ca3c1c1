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
    told = [_told(place) for place in places.missing_places(spec)]
    if said := " ".join(filter(None, told)):
        raise LaunchRefused(said)
    if told:
        raise LaunchRefused("Its code or packages are being prepared.", passing=True)
    roots = places.roots_of(spec)
    if roots is None:
        assert spec.code is not None, "what lies in python_path is always named"
        raise LaunchRefused(
            f"The code {spec.code.upload[:19]} is not on host {settings.HEADGATE_HOST}. "
            "Upload it again, or share HEADGATE_HOME/code between the hosts."
        )
    folder = places.packages_folder(spec) if spec.packages.strip() else None
    kept = places.root_of(spec.code)
    used = [one for one in (kept.parent if kept else None, folder) if one is not None]
    if not all(map(use_folder, used)):  # one has just been released
        raise LaunchRefused("Its code or packages are being prepared.", passing=True)
    return InPlace(roots, str(folder or ""))


def _told(place: Path) -> str:
    """Return and clear the reason why a place could not be prepared; "" if none is known."""
    marker = places.marker(place)
    said = read_file(marker) or ""
    marker.unlink(missing_ok=True)
    return said


def begin(spec: ApplicationSpec) -> None:
    """Start preparing the missing places, unless that is already in progress."""
    missing = places.missing_places(spec)
    for place in missing:
        is_code = spec.code is not None and place == places.git_note(spec.code)
        work = partial(fetch, spec.code) if spec.code and is_code else partial(install, spec)
        with _lock:
            if place in _at_work or places.marker(place).exists():
                continue
            thread = threading.Thread(
                target=_fill, args=(place, spec, work), name="code and packages", daemon=True
            )
            _at_work[place] = thread
        thread.start()


def wait(timeout_s: float) -> None:
    """Wait until nothing is being prepared, at most `timeout_s`."""
    with _lock:
        threads = list(_at_work.values())
    for thread in threads:
        thread.join(timeout_s)


def _fill(place: Path, spec: ApplicationSpec, work: Callable[[], None]) -> None:
    try:
        with _slots:
            _alone(place, spec, work)
    except Exception as error:  # thread boundary: the application reports the failure
        known = isinstance(error, FetchFailed | InstallFailed)
        if not known:
            logger.exception("code or packages could not be put into place")
        _note(place, str(error) if known else f"An error in Headgate: {type(error).__name__}.")
    finally:
        close_old_connections()
        with _lock:
            _at_work.pop(place, None)


def _alone(place: Path, spec: ApplicationSpec, work: Callable[[], None]) -> None:
    """Do the work unless another process on this host is doing it or has done it."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = take_lock(lock_of(place))
    if held is None:
        return
    try:
        if place in places.missing_places(spec):
            work()
            logger.info("put into place: %s", place.name[:12])
    finally:
        os.close(held)


def _note(place: Path, said: str) -> None:
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(places.marker(place), said)
    except OSError:
        logger.exception("could not record a failure: %s", said)
