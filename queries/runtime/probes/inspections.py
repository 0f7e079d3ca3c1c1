"""Show a query's data: a batch's records, and a limited number of a state's rows.

Counts cover the whole store, but only a few rows are shown, each of them truncated. The rows leave
this process only in `result.json`, which only the drivers' account can read.

Each source is read again as a batch: the same files, or the same offsets. If the SQL fails on these
records too, bisection finds the first record without which it does not fail. This reading has no
state, so an error that depends on state does not recur.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from queries.domain.definitions.allowed_paths import AllowedPaths
from queries.domain.probes.questions import KEY_ROWS, TOTAL_ROWS, BatchRead, RecordsTask, XrayTask
from queries.runtime import build
from queries.runtime.allowed_paths import (
    require_options,
    require_plan,
    require_query,
    require_table,
    require_text,
)
from queries.runtime.failures.error_capture import from_python
from queries.secret_references import References

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
        "partitions": sorted(partitions, key=lambda partition: partition["partition"]),
        "rows": sum(partition["rows"] for partition in partitions),
        "bytes": sum(partition["bytes"] for partition in partitions),
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


NUMBER = "_headgate_record"
RECORD_TEXT_LIMIT = 4_000  # characters shown per record
_BESIDE = 3  # records before and after the failing one

#: Stream options that a batch does not accept, or that would select other records.
_STREAMING = frozenset(
    {
        *("path", "subscribe", "subscribepattern", "assign", "failondataloss", "groupidprefix"),
        *("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp"),
        *("startingoffsetsbytimestamp", "endingoffsetsbytimestamp", "kafka.group.id"),
        *("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"),
        *("maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage"),
        *("cleansource", "sourcearchivedir"),
    }
)
_KAFKA = (
    "partition",
    "offset",
    "timestamp",
    "cast(key as string) as key",
    "cast(value as string) as value",
)


class Records:
    """The records of one batch."""

    def __init__(
        self, spark: Any, task: RecordsTask, references: References, roots: AllowedPaths | None
    ) -> None:
        self._task, self._references, self._roots = task, references, roots
        self._session = spark.newSession()
        for name, value in build.session_conf(task.spec, references).items():
            self._session.conf.set(name, value)
        self._session.conf.set("spark.sql.session.timeZone", "UTC")
        self._frames: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def read(self) -> None:
        """Read the batch's records from each source, at most `looked_at` of them."""
        from pyspark.sql import functions as f

        sources = {source["name"]: source for source in self._task.spec["sources"]}
        for read in self._task.reads:
            whole = self._read_again(sources[read.source], read).limit(self._task.looked_at)
            numbered = whole.withColumn(NUMBER, f.monotonically_increasing_id()).cache()
            self._frames[read.source] = numbered
            self._counts[read.source] = numbered.count()

    def failing(self) -> tuple[bool, dict[str, Any] | None]:
        """Return whether the search finished, and the first failing record, if any."""
        until = time.monotonic() + self._task.search_s
        for table in self._task.spec.get("tables") or ():
            options = table.get("options") or {}
            require_options(self._roots, table["format"], options)
            require_table(self._roots, self._session, table["format"], options)
            frame = build.static_table(self._session, table, self._references)
            frame.createOrReplaceTempView(table["name"])
        if self._error({}) is None:
            return True, None
        for name, count in self._counts.items():
            if not count or self._error({name: 0}) is not None:
                continue  # it fails without any of these
            fits, fails = 0, count
            while fails - fits > 1:
                if time.monotonic() > until:
                    return False, None
                middle = (fits + fails) // 2
                if self._error({name: middle}) is None:
                    fits = middle
                else:
                    fails = middle
            return True, {"source": name, "record": fails - 1, "error": self._error({name: fails})}
        return True, None

    def shown(self, failing: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """Return some records from each source: those around the failing record, or the first."""
        samples = []
        for name, frame in self._frames.items():
            first = 0
            if failing and failing["source"] == name:
                first = max(0, failing["record"] - _BESIDE)
            samples.append(
                {
                    "source": name,
                    "looked_at": self._counts[name],
                    "whole": self._counts[name] < self._task.looked_at,
                    "first": first,
                    "records": self._rows(name, frame, first),
                }
            )
        return samples

    def _rows(self, name: str, frame: Any, first: int) -> list[dict[str, Any]]:
        from pyspark.sql import functions as f

        some = frame.where(f.col(NUMBER) >= first).orderBy(NUMBER).limit(self._task.rows)
        if self._is_kafka(name):
            some = some.selectExpr(NUMBER, *_KAFKA)
        columns = [column for column in some.columns if column != NUMBER]
        texts = some.select(NUMBER, f.to_json(f.struct(*columns)).alias("_json"))
        return [
            {"record": int(row[NUMBER]), "text": str(row["_json"])[:RECORD_TEXT_LIMIT]}
            for row in texts.collect()
        ]

    def _error(self, limits: Mapping[str, int]) -> str | None:
        """Run the SQL over all records, or the first few from some sources; return its error."""
        from pyspark.sql import functions as f

        for name, frame in self._frames.items():
            some = frame if name not in limits else frame.where(f.col(NUMBER) < limits[name])
            some.drop(NUMBER).createOrReplaceTempView(name)
        try:
            self._sql(self._task.spec["sql"]).write.format("noop").mode("append").save()
        except Exception as error:
            return from_python(error, self._references.mask).root_cause[:RECORD_TEXT_LIMIT]
        return None

    def _sql(self, text: str) -> Any:
        require_query(self._session, text)
        require_text(self._roots, self._session, text)
        frame = self._session.sql(text, args=self._task.spec.get("params") or None)
        require_plan(self._roots, frame)
        return frame

    def hot_keys(self) -> dict[str, Any] | None:
        """Return the keys with the most rows of a sample of the batch; None without a grouping.

        A failure is reported as `problem`: the records are shown in any case.
        """
        from pyspark.sql import functions as f

        if not self._task.keys_sql:
            return None
        part = 1.0
        if self._task.batch_rows > self._task.sampled:
            part = self._task.sampled / self._task.batch_rows
        sources = {source["name"]: source for source in self._task.spec["sources"]}
        try:
            for read in self._task.reads:
                whole = self._read_again(sources[read.source], read)
                some = whole.sample(part, seed=1) if part < 1 else whole
                some.createOrReplaceTempView(read.source)
            counted = self._sql(self._task.keys_sql)
            keys = [name for name in counted.columns if name not in (KEY_ROWS, TOTAL_ROWS)]
            text = f.to_json(f.struct(*keys)).alias("_json")
            rows = counted.select(text, KEY_ROWS, TOTAL_ROWS).collect()
        except Exception as error:
            problem = from_python(error, self._references.mask).root_cause[:RECORD_TEXT_LIMIT]
            return {"problem": problem, "keys": [], "rows": 0, "part": part}
        return {
            "problem": "",
            "keys": [
                {"text": str(row[0])[:RECORD_TEXT_LIMIT], "rows": int(row[1])} for row in rows
            ],
            "rows": int(rows[0][2]) if rows else 0,
            "part": part,
        }

    def _is_kafka(self, name: str) -> bool:
        return any(read.start or read.end for read in self._task.reads if read.source == name)

    def _read_again(self, source: Mapping[str, Any], read: BatchRead) -> Any:
        resolved_options = self._references.resolve_all(source.get("options") or {})
        require_options(self._roots, source["format"], resolved_options)
        options = {
            key: value for key, value in resolved_options.items() if key.lower() not in _STREAMING
        }
        reader = self._session.read.format(source["format"]).options(**options)
        if source.get("schema"):
            reader = reader.schema(source["schema"])
        if not read.files:
            return reader.options(**_offsets(read)).load()
        for path in read.files:
            require_options(self._roots, source["format"], {"path": path})
        path = next((value for key, value in resolved_options.items() if key.lower() == "path"), "")
        if path and not set("*?[{") & set(path):
            reader = reader.option("basePath", path)  # like the stream, for the columns of folders
        return reader.load(list(read.files))


def _offsets(read: BatchRead) -> dict[str, str]:
    """Return the options for reading exactly these offsets."""
    import json

    assigned = {topic: [int(partition) for partition in parts] for topic, parts in read.end.items()}
    return {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(read.start),
        "endingOffsets": json.dumps(read.end),
    }


def look(
    spark: Any,
    task: RecordsTask,
    references: References,
    roots: AllowedPaths | None,
    step: Callable[[str], Any],
) -> dict[str, Any]:
    """Return a batch's records, the failing one, and the keys with the most rows."""
    records = Records(spark, task, references, roots)
    with step("Reading the batch's records"):
        records.read()
    with step("Searching for the failing record"):
        searched, failing = records.failing()
    shown = records.shown(failing)
    with step("Counting the keys"):
        hot_keys = records.hot_keys()
    return {"sources": shown, "searched": searched, "failing": failing, "hot": hot_keys}
