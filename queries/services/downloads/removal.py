"""Remove connectors and versions of Spark from this host, unless they are in use."""

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction

from headgate_server import downloads
from listeners.loops.troubles import loop_errors
from queries.domain.access.acts import Act
from queries.domain.errors import Conflict, Missing, NotAllowed
from queries.domain.sparks import OURS, SPARKS, Spark, installable
from queries.models.installation import Installation
from queries.selectors.definitions.connectors import folder_for, ready_connectors
from queries.selectors.definitions.spark_users import SparkUser, is_set_up, spark_users
from queries.selectors.definitions.sparks import folder_of, installed_sparks
from queries.services.access.audit_trail import record_act

logger = logging.getLogger(__name__)
_loop = loop_errors("sparks", logger)

#: Users named in a refusal.
_MOST_NAMED = 5
#: Age at which a temporary folder is a leftover of a dead process; a download takes at most 1 h.
_LEFTOVERS_LIVE = timedelta(days=1)
#: The name of such a folder (`tempfile.mkdtemp`).
_LEFT = re.compile(r"\..+-[a-z0-9_]{8}")


def remove_connector(name: str, spark: Spark, *, actor: str, now: datetime) -> None:
    """Remove a connector for a version of Spark.

    Raises `Missing` if it is not installed, and `Conflict` while an application names it or a
    driver runs with it.
    """
    what = installable(spark, name)
    if name not in ready_connectors(spark):
        raise Missing(f"The connector {name} is not installed for Spark {spark}.")
    with _unused(what, lambda user: user.spark == spark and name in user.connectors, actor, now):
        removed = downloads.set_aside(folder_for(spark) / name)
    shutil.rmtree(removed, ignore_errors=True)


def remove_spark(spark: Spark, *, actor: str, now: datetime) -> None:
    """Remove a version of Spark; its connectors stay.

    Raises `NotAllowed` for Headgate's own version, `Missing` if the version is not installed, and
    `Conflict` while an application names it or a driver runs on it.
    """
    folder = folder_of(spark)
    if folder is None:
        raise NotAllowed(f"Spark {spark} is Headgate's own version, which cannot be removed.")
    if spark not in installed_sparks():
        raise Missing(f"Spark {spark} is not installed.")
    with _unused(installable(spark), lambda user: user.spark == spark, actor, now):
        removed = downloads.set_aside(folder)
    shutil.rmtree(removed, ignore_errors=True)


@contextmanager
def _unused(
    what: str, uses: Callable[[SparkUser], bool], actor: str, now: datetime
) -> Iterator[None]:
    """Record a removal, and keep the lock so that nothing can begin to use what is removed.

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
    """Remove versions of Spark that nothing on any host has used for HEADGATE_CODE_DAYS.

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
