"""Rewinds, a clone and a restart of the batch numbers with a real table as sink, in one Spark.

Arguments: delta|iceberg, a folder, the folder of the connector's jars. Prints one JSON line: what
was said before each act, and what was in the table after it.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.snapshot import snapshot
from queries.domain.tables.replay import continued, in_delta, in_iceberg, new_id, restarted, rewound
from queries.storage.hadoop import LocalFiles
from queries.storage.table_logs import read_delta, read_iceberg

LIMIT_S = 120
CONF = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    },
    "iceberg": {
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
    },
}


class Story:
    """A query that reads a folder of files, one row each, into a table."""

    def __init__(self, table_format: str, folder: Path, jars: Path) -> None:
        self.format, self.folder = table_format, folder
        self.files = folder / "in"
        self.table = folder / "warehouse" / "db" / "t"
        self.name = "ice.db.t" if table_format == "iceberg" else f"delta.`{self.table}`"
        self.files.mkdir()
        conf = {
            "spark.jars": ",".join(sorted(str(jar) for jar in jars.glob("*.jar"))),
            **CONF[table_format],
            "spark.sql.catalog.ice.warehouse": str(folder / "warehouse"),
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.codegen.wholeStage": "false",  # small data: compiling takes longer
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "700m",
            "spark.driver.host": "127.0.0.1",
        }
        builder = SparkSession.builder.master("local[1]")
        for key, value in conf.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self.spark.sql(f"CREATE TABLE {self.name} (n BIGINT) USING {table_format}")
        self.told: list[dict[str, Any]] = []

    def write(self, *numbers: int) -> None:
        """Let files arrive, each with its number as its row."""
        for number in numbers:
            (self.files / f"{number:03}.json").write_text(json.dumps({"n": number}) + "\n")

    def run(self, checkpoint: Path, *, at_once: int) -> None:
        """Read all there is, in batches of at most so many files."""
        source = self.spark.readStream.schema("n long").option("maxFilesPerTrigger", at_once)
        writer = source.json(str(self.files)).writeStream.format(self.format)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        # Delta has tables by path in `start` only, and Iceberg those of catalogs in `toTable` only.
        delta = self.format == "delta"
        query = writer.start(str(self.table)) if delta else writer.toTable(self.name)
        if not query.awaitTermination(LIMIT_S):
            raise TimeoutError(f"{checkpoint} has not ended within {LIMIT_S} s")

    def tell(self, act: str, said: list[str], *, compare: bool = False) -> None:
        """Note what was said, what is in the table, and what a batch computation has."""
        frames = {"table": self.spark.sql(f"SELECT n FROM {self.name}")}
        if compare:
            frames["batch"] = self.spark.read.schema("n long").json(str(self.files))
        rows = {name: sorted(row.n for row in one.collect()) for name, one in frames.items()}
        self.told.append({"act": act, "said": said, **rows})

    def found(self, checkpoint: Path) -> Any:
        """Return the batches of a checkpoint's query that the table has, read from its log."""
        query = json.loads((checkpoint / "metadata").read_text())["id"]
        if self.format == "iceberg":
            return in_iceberg(query, read_iceberg(LocalFiles(), self.table.as_uri()).table)
        log = read_delta(LocalFiles(), self.table.as_uri())
        return in_delta(query, log.state, log.commits.values())


def main(table_format: str, folder: Path, jars: Path) -> None:
    """Play all acts."""
    story = Story(table_format, folder, jars)
    first = folder / "first"
    story.write(0, 1, 2, 3)
    story.run(first, at_once=1)
    story.tell("run", [], compare=True)

    again = folder / "again"  # the same batches once more
    said = rewound("t", story.found(first), 1, max(CheckpointLogs(first).begun()))
    snapshot(first.as_uri(), again, 1)
    story.run(again, at_once=1)
    story.tell("rewind", said, compare=True)

    other = folder / "other"  # batches that reach further than before
    said = rewound("t", story.found(first), 1, max(CheckpointLogs(first).begun()))
    snapshot(first.as_uri(), other, 1)
    story.write(4, 5)
    story.run(other, at_once=3)  # batch 2: files 2, 3, 4; batch 3: file 5
    story.write(6)
    story.run(other, at_once=3)  # batch 4
    story.tell("rewind to other batches", said, compare=True)

    clone = folder / "clone"
    said = new_id("t", same=True)
    snapshot(other.as_uri(), clone, 3, new_id=True)
    story.run(clone, at_once=1)  # file 6 once more
    story.tell("clone", said)

    reset = folder / "reset"  # as a reset of a stateful query: the ID is kept, numbers are not
    reset.mkdir()
    said = restarted("t", story.found(first))
    (reset / "metadata").write_text((first / "metadata").read_text())
    story.run(reset, at_once=2)  # batches 0 to 3, and the table has up to 4
    story.tell("reset", said)

    last = max(CheckpointLogs(reset).begun())
    said = continued("t", story.found(reset), last)
    story.write(7, 8)
    story.run(reset, at_once=1)  # batches 4 and 5
    story.tell("continue", said)
    story.spark.stop()
    sys.stdout.write(json.dumps(story.told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
