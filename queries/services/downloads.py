"""Remove connectors and Sparks from this host, and archive Spark's classes while it is quiet.

A thread of each worker does this for Headgate's own Spark, and for the versions that applications
name: one archive at a time, each once. Drivers start without an archive until it exists.
"""

import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import psutil
from django.conf import settings
from django.db import close_old_connections, transaction

from headgate_ground.files import KEEP_FREE, free_bytes
from headgate_server import downloads
from listeners.loops.backlogs import loop_errors
from queries.domain.access import Act
from queries.domain.errors import Conflict, Missing, NotAllowed
from queries.domain.sparks import OURS, SPARKS, Spark, installable
from queries.domain.states import DriverState
from queries.launchers.base import ClassArchives, NotMade
from queries.models.drivers import Driver, Installation
from queries.selectors.definitions.definitions import folder_for, ready_connectors
from queries.selectors.definitions.sparks import SparkUser, is_set_up, spark_users
from queries.selectors.spark_folders import folder_of, installed_sparks
from queries.services.access.audit import record_act

logger = logging.getLogger(__name__)
_loop = loop_errors("sparks", logger)

#: Users named in a refusal.
_MOST_NAMED = 5
#: Age at which a temporary folder is a leftover of a dead process; a download takes at most 1 h.
_LEFTOVERS_LIVE = timedelta(days=1)
#: The name of such a folder (`tempfile.mkdtemp`).
_LEFT = re.compile(r"\..+-[a-z0-9_]{8}")


def remove_connector(name: str, spark: Spark, *, actor: str, now: datetime) -> None:
    """Remove a connector for a Spark version.

    Raises `Missing` if it is not installed, and `Conflict` while an application names it or a
    driver runs with it.
    """
    what = installable(spark, name)
    if name not in ready_connectors(spark):
        raise Missing(f"The connector {name} is not installed for Spark {spark}.")
    with _unused(what, lambda user: user.spark == spark and name in user.connectors, actor, now):
        removed_folder = downloads.set_aside(folder_for(spark) / name)
    shutil.rmtree(removed_folder, ignore_errors=True)


def remove_spark(spark: Spark, *, actor: str, now: datetime) -> None:
    """Remove a Spark version; its connectors stay.

    Raises `NotAllowed` for Headgate's own version, `Missing` if the version is not installed, and
    `Conflict` while an application names it or a driver runs on it.
    """
    folder = folder_of(spark)
    if folder is None:
        raise NotAllowed(f"Spark {spark} is Headgate's own version, which cannot be removed.")
    if spark not in installed_sparks():
        raise Missing(f"Spark {spark} is not installed.")
    with _unused(installable(spark), lambda user: user.spark == spark, actor, now):
        removed_folder = downloads.set_aside(folder)
    shutil.rmtree(removed_folder, ignore_errors=True)


@contextmanager
def _unused(
    what: str, uses: Callable[[SparkUser], bool], actor: str, now: datetime
) -> Iterator[None]:
    """Record a removal, and keep the lock so that nothing can begin to use the removed item.

    Raises `Conflict` if something uses it.
    """
    if not is_set_up():  # nothing can use it yet
        yield
        return
    with transaction.atomic():
        Installation.lock()  # definitions are saved under this lock: no new references
        if users := [user for user in spark_users() if uses(user)]:
            named = ", ".join(map(str, users[:_MOST_NAMED]))
            more = f" and {len(users) - _MOST_NAMED} more" if len(users) > _MOST_NAMED else ""
            raise Conflict(
                f"{what[0].upper()}{what[1:]} is used by {named}{more}.",
                way_out="Change these applications, and wait until their drivers have ended.",
            )
        record_act(Act.INSTALLED, actor=actor, now=now, subject=what, did="removed")
        yield


def prune_sparks(*, now: datetime) -> int:
    """Remove Spark versions that nothing on any host has used for HEADGATE_CODE_DAYS.

    A version is used if an existing application names it or an open driver runs on it, including
    preflights and other probes. Returns how many were removed. Also deletes the leftovers of
    interrupted downloads and removals.
    """
    named = {user.spark for user in spark_users()}
    before = (now - timedelta(days=settings.CODE_DAYS)).timestamp()
    removed = 0
    for spark in (
        version for version in SPARKS if version != OURS and version in installed_sparks()
    ):
        with _loop.isolate_errors(f"Spark {spark}"):
            folder = Path(settings.SPARKS_DIR) / spark
            if spark in named:
                os.utime(folder)
            elif folder.stat().st_mtime < before:  # time of the installation or of the last use
                remove_spark(spark, actor="", now=now)
                logger.info("removed Spark %s, which was no longer used", spark)
                removed += 1
    places = [Path(settings.SPARKS_DIR), *map(folder_for, SPARKS)]
    for left in (path for parent in places for path in parent.glob(".*-*") if path.is_dir()):
        if not _LEFT.fullmatch(left.name):
            continue  # of whoever runs the host
        with _loop.isolate_errors(f"folder {left.name}"):
            if left.stat().st_mtime < (now - _LEFTOVERS_LIVE).timestamp():
                shutil.rmtree(left)
    return removed


#: Seconds between two looks.
LOOK_S = 30.0
#: Looks in a row at which the host must be quiet: the demo's drivers start one after the other.
QUIET_LOOKS = 2
#: Seconds after which the log says that an archive still waits for its host.
SAYS_AFTER_S = 3600.0
#: What the training needs, in bytes: its JVM and Python; the archive and its draft.
NEEDS_MEMORY, NEEDS_DISK = 1_500_000_000, 500_000_000


NOT_QUIET = (
    "for an hour, this host has not had a free processor and no driver that starts, as making one "
    "requires. It is made as soon as both are true for a minute."
)


class Archiver:
    """Makes this host's missing archives."""

    def __init__(self, archives: ClassArchives, leaving: Callable[[float], bool]) -> None:
        """`leaving` waits for the given seconds, and returns whether the worker is stopping."""
        self._archives = archives
        self._leaving = leaving
        self._failed: set[Path] = set()  # not tried again by this process
        self._logged: set[str] = set()
        self._quiet = 0
        self._waits_since: float | None = None  # since an archive is missing and none was tried

    def run(self) -> None:
        """Look until the worker stops."""
        while not self._leaving(LOOK_S):
            try:
                close_old_connections()
                self.look(now=time.time())
            except Exception as error:  # loop boundary: drivers start without an archive
                logger.warning("class archives: %s", error)

    def look(self, *, now: float) -> Path | None:
        """Make a missing archive if the host is quiet, and remove unused ones; return the new one.

        `now` is the time in seconds since the epoch.
        """
        wanted = dict(self._wanted())
        self._archives.prune(wanted, before=now - settings.CODE_DAYS * 24 * 3600)
        made = self._archives.is_whole
        missing = [path for path in wanted if path not in self._failed and not made(path)]
        self._quiet = self._quiet + 1 if missing and is_quiet() else 0
        if not missing:
            self._waits_since = None
            return None
        target = missing[0]
        spark = wanted[target]
        why_not = _no_room(self._archives.folder.parent)
        if self._quiet < QUIET_LOOKS or why_not:
            self._log_postponement(spark, why_not or NOT_QUIET, now)
            return None
        self._quiet, self._waits_since = 0, None
        began = time.monotonic()
        try:
            self._archives.make(target, _folder(spark), self._leaving)
        except NotMade as error:
            self._failed.add(target)
            self._log_failure(spark, error)
            return None
        took = time.monotonic() - began
        logger.info("made the class archive of Spark %s in %.0f s", spark, took)
        return target

    def _wanted(self) -> Iterator[tuple[Path, Spark]]:
        """Yield the archives that drivers on this host would use, and their Spark version."""
        named = {user.spark for user in spark_users()} if is_set_up() else set()
        installed_versions = installed_sparks() & {OURS, *named}
        for spark in (
            version for version in reversed(SPARKS) if version in installed_versions
        ):  # ours is the newest
            try:
                yield self._archives.path(_folder(spark)), spark
            except NotMade as error:
                self._log_failure(spark, error)

    def _log_failure(self, spark: Spark, error: NotMade) -> None:
        """Log why there is no archive, once."""
        sentence = f"drivers with Spark {spark} start without a class archive: {error}"
        if sentence not in self._logged:
            self._logged.add(sentence)
            logger.warning("%s", sentence)

    def _log_postponement(self, spark: Spark, why: str, now: float) -> None:
        if self._waits_since is None:
            self._waits_since = now
        if now - self._waits_since >= SAYS_AFTER_S:
            self._log_failure(spark, NotMade(why))


def _no_room(folder: Path) -> str:
    """Return, as a sentence, what the training lacks; "" if it lacks nothing."""
    if psutil.virtual_memory().available <= NEEDS_MEMORY:
        return f"making one needs {NEEDS_MEMORY / 1e9:.1f} GB of free memory on this host."
    if free_bytes(folder) <= KEEP_FREE + NEEDS_DISK:
        return f"making one needs {(KEEP_FREE + NEEDS_DISK) / 1e9:.1f} GB free in {folder}."
    return ""


def is_quiet() -> bool:
    """Return whether no driver of this host is starting, and a processor has been free."""
    starting = Driver.objects.filter(host=settings.HEADGATE_HOST, state=DriverState.STARTING)
    return os.getloadavg()[0] < (os.cpu_count() or 1) and not starting.exists()


def _folder(spark: Spark) -> str:
    return str(folder_of(spark) or "")
