"""Show the records that a batch read, the one on which its SQL fails, and the most frequent keys.

Each source is read again as a batch: the same files, or the same offsets. If the SQL fails on these
records too, bisection finds the first record without which it does not fail. This reading has no
state, so an error that depends on state does not recur.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from queries.domain.definitions.data_roots import DataRoots
from queries.domain.probes.questions import KEY_ROWS, TOTAL_ROWS, BatchRead, RecordsTask
from queries.runtime import build
from queries.runtime.data_roots import (
    require_options,
    require_plan,
    require_table,
    require_text,
)
from queries.runtime.failures.error_capture import from_python
from queries.runtime.sql import require_query
from queries.secret_references import References

NUMBER = "_headgate_record"
TEXT_LIMIT = 4_000  # characters shown per record
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
        self, spark: Any, task: RecordsTask, references: References, roots: DataRoots | None
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
            {"record": int(row[NUMBER]), "text": str(row["_json"])[:TEXT_LIMIT]}
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
            return from_python(error, self._references.mask).root_cause[:TEXT_LIMIT]
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
        sources = {entry["name"]: entry for entry in self._task.spec["sources"]}
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
            problem = from_python(error, self._references.mask).root_cause[:TEXT_LIMIT]
            return {"problem": problem, "keys": [], "rows": 0, "part": part}
        return {
            "problem": "",
            "keys": [{"text": str(entry[0])[:TEXT_LIMIT], "rows": int(entry[1])} for entry in rows],
            "rows": int(rows[0][2]) if rows else 0,
            "part": part,
        }

    def _is_kafka(self, name: str) -> bool:
        return any(read.start or read.end for read in self._task.reads if read.source == name)

    def _read_again(self, source: Mapping[str, Any], read: BatchRead) -> Any:
        resolved = self._references.resolve_all(source.get("options") or {})
        require_options(self._roots, source["format"], resolved)
        options = {key: value for key, value in resolved.items() if key.lower() not in _STREAMING}
        reader = self._session.read.format(source["format"]).options(**options)
        if source.get("schema"):
            reader = reader.schema(source["schema"])
        if not read.files:
            return reader.options(**_offsets(read)).load()
        for path in read.files:
            require_options(self._roots, source["format"], {"path": path})
        path = next((value for key, value in resolved.items() if key.lower() == "path"), "")
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
    roots: DataRoots | None,
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
        hot = records.hot_keys()
    return {"sources": shown, "searched": searched, "failing": failing, "hot": hot}
