"""The driver of the test of order and replay: Kafka -> a call a record -> files, until killed.

python -m tests.headgate_async.replay_driver {json of Story}
"""

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from headgate_async import map_async
from tests.headgate_async.remote import RemoteFailed, connect


@dataclass(frozen=True)
class Story:
    """What the driver is to do."""

    servers: str
    topic: str
    output: str
    checkpoint: str
    port: int
    jars: str
    local: str
    rows: int  # in a batch


async def ask(row: Any, client: Any) -> tuple[Any, ...]:
    """Ask the remote, telling it who asks: this task of this worker, for which row."""
    from pyspark import TaskContext

    task: Any = TaskContext.get()
    await client.ask(f"{os.getpid()}-{task.taskAttemptId()}|{row.key}|{row.identity}")
    return row.key, row.identity


def main(story: Story) -> None:
    """Run the query, from its checkpoint again whenever it fails, until this process is killed."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", story.jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", story.local)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    options = {
        "kafka.bootstrap.servers": story.servers,
        "subscribe": story.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(story.rows),
    }
    frame = (
        spark.readStream.format("kafka")
        .options(**options)
        .load()
        .selectExpr("CAST(key AS STRING) AS key", "topic", "partition", "offset")
    )
    asked = map_async(
        frame,
        ask,
        key="key",
        schema="key STRING, identity STRING",
        setup=partial(connect, story.port),
        in_flight=64,
        timeout_s=5.0,
        retries=50,
        transient=(ConnectionError, TimeoutError, RemoteFailed),
        backoff_s=(0.005, 0.05),
    )
    while True:
        query = (
            asked.writeStream.format("json")
            .option("path", story.output)
            .option("checkpointLocation", story.checkpoint)
            .start()
        )
        with suppress(StreamingQueryException):  # a killed worker ends it in local mode
            query.awaitTermination()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    main(Story(**json.loads(sys.argv[1])))
