"""Code of users that opens what a driver can open: listeners, foreachBatch, a Python worker."""

import time
from pathlib import Path
from typing import Any

from pyspark.sql.functions import udf
from pyspark.sql.streaming import StreamingQueryListener


def note(path: str | Path) -> None:
    """Write a line into a file."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{time.time()}\n")


class Noting(StreamingQueryListener):  # type: ignore[misc]
    """Notes each batch that it is notified of in a file."""

    def __init__(self, path: str = "") -> None:
        self._path = path or (Path(__file__).parent / "heard").read_text()

    def onQueryStarted(self, event: Any) -> None:
        """Take a start."""

    def onQueryProgress(self, event: Any) -> None:
        """Note a batch."""
        note(self._path)

    def onQueryTerminated(self, event: Any) -> None:
        """Take an end."""


def writer(spark: Any, params: dict[str, str]) -> Any:
    """Return a query whose batches go through Python twice."""
    same = udf(lambda value: value, "long")

    def take(batch: Any, number: int) -> None:
        if batch.select(same("value")).collect():
            note(params["batches"])

    frame = spark.readStream.format("rate").option("rowsPerSecond", "5").load()
    return frame.writeStream.foreachBatch(take)
