"""A host with versions of Spark and connectors, as their downloads leave them."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from headgate_server import downloads
from queries.domain.sparks import OURS
from queries.jvm import compiled


class HostFolders:
    """The folders of a host."""

    def __init__(self, folder: Path, settings: Any) -> None:
        self.sparks, self.connectors = folder / "sparks", folder / "connectors"
        settings.SPARKS_DIR, settings.CONNECTORS_DIR = self.sparks, self.connectors
        self._classes = settings.JARS_DIR

    def spark(self, version: str) -> Path:
        """Install a version of Spark, for which our classes have been compiled."""
        jars = self.sparks / version / downloads.SPARK_JARS
        jars.mkdir(parents=True)
        (jars / "spark-core_2.13-4.jar").write_text("core")
        downloads.write_sums(jars)
        self._classes.mkdir(exist_ok=True)
        (self._classes / compiled.jar_name(jars)).touch()
        return self.sparks / version

    def connector(self, name: str, spark: str = OURS) -> Path:
        """Install a connector."""
        folder = self.connectors / ("" if spark == OURS else spark) / name
        folder.mkdir(parents=True)
        (folder / f"{name}-1.0.jar").write_text(name)
        downloads.write_sums(folder)
        return folder

    @staticmethod
    def aged(place: Path, now: datetime, days: float) -> Path:
        """Make a folder look as if it had been installed or named so many days ago."""
        at = (now - timedelta(days=days)).timestamp()
        os.utime(place, (at, at))
        return place
