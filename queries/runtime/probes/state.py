"""Read a limited number of rows from a state store, with Spark's own state readers.

Counts cover the whole store, but only a few rows are shown, each of them truncated. The rows leave
this process only in `result.json`, which only the drivers' account can read.
"""

import json
from typing import Any

from queries.domain.probes.questions import XrayTask

LARGEST = 20  # maximum groups, and maximum values per key column
TEXT_LIMIT = 2_000  # characters shown per row


def read(spark: Any, task: XrayTask) -> dict[str, Any]:
    """Return operators, rows per partition, largest groups, frequent values and a few rows."""
    session = spark.newSession()
    # Makes the coordinator of state stores, which Spark 4.1 and 4.2 ask when they read state.
    _ = session.streams
    if task.state_format == 2:
        session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    operators = _operators(session, task)
    names = [operator["name"] for operator in operators if operator["id"] == task.operator]
    if not names:
        choices = (
            ", ".join(f"{operator['id']} ({operator['name']})" for operator in operators) or "none"
        )
        raise ValueError(f"The checkpoint has no state operator {task.operator}; choose {choices}.")
    return {"operators": operators, "operator": task.operator, **_rows(session, task)}


def _operators(session: Any, task: XrayTask) -> list[dict[str, Any]]:
    rows = session.read.format("state-metadata").load(task.checkpoint).collect()
    operators: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rows:
        fields = row.asDict(recursive=True)
        key = (int(fields["operatorId"]), str(fields["stateStoreName"]))
        operators[key] = {
            "id": key[0],
            "name": str(fields["operatorName"]),
            "store": key[1],
            "partitions": int(fields["numPartitions"]),
            "oldest": int(fields["minBatchId"]),
            "newest": int(fields["maxBatchId"]),
        }
    return [operators[key] for key in sorted(operators)]


def _rows(session: Any, task: XrayTask) -> dict[str, Any]:
    from pyspark.sql import functions as f

    frame = _reader(session, task).load(task.checkpoint)
    columns = [name for name in frame.columns if name not in ("partition_id", "change_type")]
    key = "key" if "key" in columns else columns[0]
    values = [name for name in columns if name != key]
    whole = frame.select(
        "partition_id",
        f.to_json(f.col(key)).alias("_key"),
        f.to_json(f.col("value") if values == ["value"] else f.struct(*values)).alias("_value"),
        f.col(key).alias("_columns"),
    )
    if task.contains:
        whole = whole.where(f.instr(f.lower(f.col("_key")), task.contains.lower()) > 0)
    sized = whole.withColumn("_bytes", f.octet_length("_key") + f.octet_length("_value"))
    per_partition = sized.groupBy("partition_id").agg(
        f.count("*").alias("rows"), f.sum("_bytes").alias("bytes")
    )
    largest = (
        sized.groupBy("_key")
        .agg(f.count("*").alias("rows"), f.sum("_bytes").alias("bytes"))
        .orderBy(f.desc("rows"), f.desc("bytes"), "_key")
        .limit(LARGEST)
    )
    shown = sized.orderBy(f.desc("_bytes"), "_key") if task.contains else sized
    partitions = [
        {
            "partition": int(row["partition_id"]),
            "rows": int(row["rows"]),
            "bytes": int(row["bytes"]),
        }
        for row in per_partition.collect()
    ]
    return {
        "partitions": sorted(partitions, key=lambda part: part["partition"]),
        "rows": sum(part["rows"] for part in partitions),
        "bytes": sum(part["bytes"] for part in partitions),
        "largest": [
            {"key": _cut(row["_key"]), "rows": int(row["rows"]), "bytes": int(row["bytes"])}
            for row in largest.collect()
        ],
        "frequent": _frequent(whole, frame.schema[key].dataType),
        "sample": [
            {
                "partition": int(row["partition_id"]),
                "key": _cut(row["_key"]),
                "value": _cut(row["_value"]),
            }
            for row in shown.limit(task.rows).collect()
        ],
    }


def _reader(session: Any, task: XrayTask) -> Any:
    reader = session.read.format("statestore").option("operatorId", str(task.operator))
    if task.batch is not None:
        reader = reader.option("batchId", str(task.batch))
    if task.side:
        return reader.option("joinSide", task.side)
    if task.variable:
        return reader.option("stateVarName", task.variable)
    return reader.option("storeName", task.store) if task.store != "default" else reader


def _frequent(whole: Any, kind: Any) -> list[dict[str, Any]]:
    """Return each key column with its number of values and the most frequent ones."""
    from pyspark.sql import functions as f

    columns = []
    for field in getattr(kind, "fields", ()):
        column = f.to_json(f.struct(f.col("_columns").getField(field.name).alias("v")))
        counted = whole.groupBy(column.alias("v")).agg(f.count("*").alias("rows"))
        top = counted.orderBy(f.desc("rows"), "v").limit(5).collect()
        values = whole.agg(f.approx_count_distinct(column).alias("n")).collect()[0]["n"]
        columns.append(
            {
                "column": field.name,
                "values": int(values),  # approximate
                "top": [{"value": _value(row["v"]), "rows": int(row["rows"])} for row in top],
            }
        )
    return columns


def _value(text: str) -> str:
    """Return the value in `{"v": …}`; return a string unchanged."""
    value = json.loads(text).get("v")
    return _cut(value if isinstance(value, str) else json.dumps(value))


def _cut(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"
