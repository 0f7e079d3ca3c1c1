"""Which versions of Spark this host has, and where."""

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from django.conf import settings

from headgate_server import downloads, places
from queries.domain.sparks import OURS, SPARKS, Spark, command
from queries.jvm.compiled import SPARK_JARS
from queries.selectors.definitions.spark_users import SparkUser, spark_users


def folder_of(spark: Spark) -> Path | None:
    """Return the folder with a version's PySpark; None for ours, which needs none."""
    return None if spark == OURS else Path(settings.SPARKS_DIR) / spark


def installed_sparks() -> frozenset[str]:
    """Return the versions that drivers on this host can run on; folders appear complete."""
    return frozenset(
        spark
        for spark in SPARKS
        if (folder := folder_of(spark)) is None or (folder / "pyspark").is_dir()
    )


def jars_of(spark: Spark) -> Path:
    """Return the folder with the jars of an installed version."""
    folder = folder_of(spark)
    return SPARK_JARS if folder is None else folder / "pyspark" / "jars"


def sum_of(path: Path) -> str:
    """Return a file's SHA-256, read once for as long as its size and times stay the same."""
    at = path.stat()
    return _sum_of(path, at.st_size, at.st_mtime_ns, at.st_ctime_ns)


@lru_cache(maxsize=2_000)
def _sum_of(path: Path, *_: int) -> str:
    return downloads.sum_of(path)


@dataclass(frozen=True, slots=True)
class SparkHere:
    """A version of Spark that applications can choose, and whether this host has it."""

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
