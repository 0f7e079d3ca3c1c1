"""The folders of this host with the Spark versions that drivers can run on."""

from pathlib import Path

from django.conf import settings

from queries.domain.sparks import OURS, SPARKS, Spark
from queries.jvm.compiled import SPARK_JARS


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
