"""The Spark versions of this host, their users, and the effect of a change on each checkpoint."""

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from django.db import connection

from headgate_server import downloads, places
from listeners.loops.backlogs import loop_errors
from queries.checkpoints.logs import CheckpointLogs, NotLocal
from queries.checkpoints.state import written
from queries.domain.checkpoints.logs import UnreadableLog
from queries.domain.checkpoints.ownership import local_path
from queries.domain.sparks import OURS, SPARKS, Spark, Written, as_json, command, spark_of
from queries.domain.states import OPEN_DRIVER_STATES, OperationOutcome, Verb
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Driver
from queries.models.history import Operation
from queries.selectors.hosts import logs_at, mirror_of, read_at_of
from queries.selectors.spark_folders import folder_of, jars_of
from queries.selectors.supervision.applications import newest_application_revisions

_each = loop_errors("connectors", logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class SparkUser:
    """An application by its newest revision, or a driver by the revision that it runs."""

    application: str
    driver: int | None  # its number, also of a preflight or a storage JVM; None: the application
    host: str  # on which the driver runs; "" for an application
    spark: str
    connectors: tuple[str, ...]
    kind: str = "driver"
    catalogs: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = f"application {self.application}"
        return name if self.driver is None else f"{self.kind} {self.driver} of {name}"


def spark_users() -> list[SparkUser]:
    """Return the living applications by name, then the open drivers."""
    living = Application.objects.filter(archived_at=None).order_by("name")
    newest = newest_application_revisions(living.values_list("pk", flat=True))
    found = []
    for application in living:
        if (revision := newest.get(application.pk)) is not None:
            with _each.isolate_errors(f"application {application.name}"):
                found.append(_user(application.name, None, "", revision.spec))
    drivers = Driver.objects.filter(state__in=sorted(OPEN_DRIVER_STATES)).order_by("pk")
    for driver in drivers.select_related("application", "application_revision"):
        with _each.isolate_errors(f"driver {driver.pk}"):
            name, spec = driver.application.name, driver.application_revision.spec
            found.append(_user(name, driver.pk, driver.host, spec))
    trials = Operation.objects.filter(
        outcome=OperationOutcome.OPEN, arguments__has_key="application_spec"
    ).order_by("pk")  # preflights and clones with a definition that is not saved
    for trial in trials.select_related("application"):
        with _each.isolate_errors(f"operation {trial.pk}"):
            spec, owner = trial.arguments["application_spec"] or {}, trial.application
            found.append(_user(owner.name if owner else "", trial.pk, "", spec, "operation"))
    return found


def is_set_up() -> bool:
    """Return whether the database has tables; commands also run before the first start."""
    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite" and not Path(name).exists():  # connecting would create it
        return False
    return Application._meta.db_table in connection.introspection.table_names()


def _user(
    application: str, driver: int | None, host: str, spec: dict[str, Any], kind: str = "driver"
) -> SparkUser:
    names, used = (tuple(map(str, spec.get(key) or ())) for key in ("connectors", "catalogs"))
    return SparkUser(application, driver, host, str(spec.get("spark") or OURS), names, kind, used)


def sum_of(path: Path) -> str:
    """Return a file's SHA-256, read once for as long as its size and times stay the same."""
    at = path.stat()
    return _sum_of(path, at.st_size, at.st_mtime_ns, at.st_ctime_ns)


@lru_cache(maxsize=2_000)
def _sum_of(path: Path, *_: int) -> str:
    return downloads.sum_of(path)


@dataclass(frozen=True, slots=True)
class SparkHere:
    """A Spark version that applications can choose, and whether this host has it."""

    version: Spark
    exact: str  # "4.2.1"; "" if it is not installed
    folder: str  # "" for Headgate's own
    bytes: int  # 0 for Headgate's own, or if it is not installed
    applications: tuple[str, ...]  # living ones that name it, by name
    drivers: int  # open ones of any host that run on it
    differing: tuple[str, ...]  # a sentence for each jar that is not what was downloaded

    @property
    def ours(self) -> bool:
        """Return whether it is Headgate's own version, which cannot be removed."""
        return self.version == OURS

    @property
    def ready(self) -> bool:
        """Return whether drivers on this host can run on it."""
        return bool(self.exact)

    @property
    def used(self) -> bool:
        """Return whether something uses it, so that it cannot be removed."""
        return bool(self.applications or self.drivers)

    @property
    def way_out(self) -> str:
        """Return the sentence that explains how to install it."""
        return places.with_local_commands(f"Install it with `{command(self.version)}`.")


def sparks_here() -> list[SparkHere]:
    """Return all versions, newest first."""
    users = spark_users()
    return [_here(spark, users) for spark in reversed(SPARKS)]


def _here(spark: Spark, users: list[SparkUser]) -> SparkHere:
    mine = [one for one in users if one.spark == spark]
    folder = folder_of(spark)
    return SparkHere(
        version=spark,
        exact=version("pyspark") if folder is None else _exact(folder),
        folder=str(folder or ""),
        bytes=0 if folder is None else _size(folder),
        applications=tuple(one.application for one in mine if one.driver is None),
        drivers=sum(one.driver is not None for one in mine),
        differing=() if folder is None else tuple(downloads.differing(jars_of(spark), sum_of)),
    )


def _exact(folder: Path) -> str:
    """Return the version in the name of PySpark's folder of metadata; "" if there is none."""
    names = [one.name for one in folder.glob("pyspark-*.dist-info")]
    return names[0].removeprefix("pyspark-").removesuffix(".dist-info") if names else ""


def _size(folder: Path) -> int:
    """Return the total size of a folder's files, in bytes."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # removed in the meantime
                total += Path(place, name).lstat().st_size
    return total


def written_of(query: Query) -> Written | None:
    """Return what wrote a query's checkpoint; None if nothing has, or it is unknown from here.

    A checkpoint on remote storage is known as last read; one on another host is unknown.
    """
    checkpoint = query.checkpoints.filter(retired_at=None).first()
    if checkpoint is None:
        return None
    location = checkpoint.location
    with suppress(NotLocal, UnreadableLog, OSError):
        if local_path(location) is not None:
            return written(logs_at(location, host=query.application.host))
        mirror = mirror_of(location)
        if mirror.about().read_at is not None:
            return written(CheckpointLogs(mirror.checkpoint))
    return None


@dataclass(frozen=True, slots=True)
class SparkRow:
    """One query, its checkpoint, and the newest preflight with the other Spark."""

    query: Query
    told: dict[str, Any] | None  # `upgrade.as_json`; None: no checkpoint, or unknown from here
    trial: Operation | None
    read_at: datetime | None = None  # when this host read a remote checkpoint


def spark_rows(application: Application, to: Spark) -> list[SparkRow]:
    """Return the existing queries of an application by name, for a change to another Spark."""
    back = spark_of(application.revisions.order_by("-number")[0].spec)
    living = application.queries.filter(archived_at=None).order_by("name")
    return [_row(query, back, to) for query in living.select_related("application")]


def _row(query: Query, back: Spark, to: Spark) -> SparkRow:
    found = written_of(query)
    told = as_json(found, found, to, back) if found is not None else None
    tried = Operation.objects.filter(
        query=query, verb=Verb.PREFLIGHT, arguments__application_spec__spark=to
    )
    checkpoint = query.checkpoints.filter(retired_at=None).first()
    read_at = None if checkpoint is None else read_at_of(checkpoint.location)
    return SparkRow(query, told, tried.order_by("-created_at", "-pk").first(), read_at)
