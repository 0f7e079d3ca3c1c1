"""What `map_async` reads from plans of Kafka streams, told as JSON: run by `test_async_lineage.py`.

python async_lineage_story.py JARS
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headgate_async import BadArgument, map_async
from headgate_async.operator import keyed_by_kafka


def main(jars: str) -> None:
    """Build plans, start nothing, and tell what was read from each."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )

    def topic(**options: str) -> Any:
        all_ = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t", **options}
        return spark.readStream.format("kafka").options(**all_).load()

    text = topic().selectExpr("CAST(key AS STRING) AS tail", "CAST(value AS STRING) AS v", "*")
    parsed = text.withColumn("of_value", f.get_json_object("v", "$.tail"))
    static = spark.range(10).selectExpr("CAST(id AS STRING) AS key")
    told = {
        "key": keyed_by_kafka(topic(), "key"),
        "cast": keyed_by_kafka(text, "tail"),
        "renamed, filtered, watermarked": keyed_by_kafka(
            text.where("v IS NOT NULL")
            .withWatermark("timestamp", "1 minute")
            .withColumnRenamed("tail", "plane")
            .select("plane"),
            "plane",
        ),
        "of the value": keyed_by_kafka(parsed, "of_value"),
        "computed": keyed_by_kafka(text.withColumn("k", f.upper("tail")), "k"),
        "a number": keyed_by_kafka(topic().selectExpr("CAST(CAST(key AS STRING) AS INT) k"), "k"),
        "two topics": keyed_by_kafka(topic(subscribe="t,u"), "key"),
        "split": keyed_by_kafka(topic(minPartitions="9"), "key"),
        "joined": keyed_by_kafka(
            text.join(static, text["tail"] == static["key"]).select("tail"), "tail"
        ),
        "not Kafka": keyed_by_kafka(spark.readStream.format("rate").load(), "value"),
    }

    async def enrich(row: Any) -> Any:
        return row

    try:
        map_async(spark.readStream.format("rate").load(), enrich, key="value", schema="value LONG")
        refused = ""
    except BadArgument as error:
        refused = str(error)
    map_async(parsed, enrich, key="of_value", schema="v STRING")  # ordered by Kafka's own columns
    sys.stdout.write(json.dumps({"told": told, "refused": refused}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
