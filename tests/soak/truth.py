"""The batch computation: the same SQL over the same records, by plain PySpark."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks._measuring import spark_session
from tests.soak import compare, definitions, tables
from tests.soak.checkpoint import Batches
from tests.soak.compare import Place, Result
from tests.soak.evidence import Evidence

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class History:
    """The batches of one query."""

    batches: Batches
    replayed: set[int]


def judge(folder: Path, servers: str, found: Evidence) -> tuple[dict[str, Result], dict[str, Any]]:
    """Compare what every sink holds with a batch; return the results and further figures."""
    queries = definitions.queries(servers, found.out, found.table)
    known = {query.name: _history(query.name, found) for query in queries}
    out, windows = Path(found.out), known[definitions.BY_MINUTE]
    truth = Truth(folder, servers, queries, table=found.table)
    try:
        by_minute, late = truth.windows(out, windows, closing_ms=found.closing_ms)
        results = {
            definitions.TO_FILES: truth.files(out),
            definitions.TO_KAFKA: truth.topic(known[definitions.TO_KAFKA]),
            definitions.BY_MINUTE: by_minute,
            definitions.BY_PLANE: truth.planes(),
            "late rows": compare.late(
                truth.dropped(windows),
                told=set(found.told),
                ledger=found.ledger,
                missing_batches=found.missing_batches,
                not_executed=set(found.not_executed),
            ),
            "records": compare.rows(range(found.taken), range(truth.records)),
        }
    finally:
        truth.close()
    return results, {
        "records": found.taken,
        "stamped late": found.stamped_late,
        "late records": late,
        "runs": {name: len(starts) for name, starts in found.starts.items()},
        "batches": {name: len(one.batches.numbers) for name, one in known.items()},
        # From the end of each fault until every query has committed again.
        "recovery s": [
            round(max(one.batches.next_commit(ended) for one in known.values()))
            for ended in map(datetime.fromisoformat, found.faults_ended)
        ],
        "replayed batches": {name: len(one.replayed) for name, one in known.items()},
    }


def _history(name: str, found: Evidence) -> History:
    batches = Batches(Path(found.checkpoints[name]), definitions.FLIGHTS)
    starts = [datetime.fromisoformat(start) for start in found.starts[name]]
    return History(batches, batches.replayed(starts))


class Truth:
    """All records of the topic, and what each query should have made of them."""

    def __init__(
        self, folder: Path, servers: str, queries: list[definitions.SoakQuery], *, table: str
    ) -> None:
        """With a format of tables, those are read instead of files."""
        self._folder, self._servers, self._table = folder, servers, table
        self._queries = {query.name: query for query in queries}
        conf = {"spark.sql.session.timeZone": "UTC", "spark.driver.memory": "2g"}
        self._spark = spark_session(folder / "truth", kafka=True, conf=conf)
        self.flights = self._topic(definitions.FLIGHTS).cache()
        self.records: int = self.flights.count()

    def close(self) -> None:
        """End the session."""
        self._spark.stop()

    def files(self, out: Path) -> Result:
        """Compare the rows in files or in a table: each once."""
        found = self._written(out, definitions.TO_FILES)
        return compare.rows(self._expected(definitions.TO_FILES), found)

    def topic(self, known: History) -> Result:
        """Compare the rows in Kafka: none missing, duplicates only where a batch was replayed."""
        expected = {_place(key): value for key, value in self._expected(definitions.TO_KAFKA)}
        rows = self._topic(definitions.CLEAN).selectExpr(
            "CAST(key AS STRING)", "CAST(value AS STRING)"
        )
        found = [(_place(row[0]), row[1]) for row in rows.collect()]
        return compare.replays(
            expected,
            found,
            batches={place: known.batches.of(place) for place in expected},
            replayed=known.replayed,
        )

    def windows(self, out: Path, known: History, *, closing_ms: int) -> tuple[Result, int]:
        """Compare the windows that were written, without what came too late.

        Also returns how many records were late.
        """
        late = [place for places in self._late(known.batches).values() for place, _ in places]
        left = self.flights.where(f"timestamp < timestamp_millis({closing_ms})")
        if late:
            dropped = self._spark.createDataFrame(late, "partition INT, offset LONG")
            left = left.join(dropped, ["partition", "offset"], "left_anti")
        expected = self._expected(definitions.BY_MINUTE, over=left)
        return compare.rows(expected, self._written(out, definitions.BY_MINUTE)), len(late)

    def dropped(self, known: History) -> dict[int, int]:
        """Return by batch how many groups came too late.

        Spark drops after it has aggregated a batch by window and key, so this counts groups.
        """
        return {
            batch: len({group for _, group in places})
            for batch, places in self._late(known.batches).items()
        }

    def planes(self) -> Result:
        """Compare the last value of each plane."""
        rows = (
            self._topic(definitions.PLANES)
            .orderBy("partition", "offset")
            .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        )
        expected = dict(self._expected(definitions.BY_PLANE))
        return compare.last_values(expected, [(row[0], row[1]) for row in rows.collect()])

    # --- inside ---------------------------------------------------------------------------------

    def _late(self, batches: Batches) -> dict[int, list[tuple[Place, Any]]]:
        """Return by batch the records that came too late, each with its window and key.

        A batch drops what belongs to a window that ended at or before the watermark of the batch
        before it: that one has written the window and removed its state.
        """
        rows = self.flights.selectExpr(
            "partition",
            "offset",
            "unix_millis(timestamp)",
            "get_json_object(CAST(value AS STRING), '$.carrier')",
        )
        found: dict[int, list[tuple[Place, Any]]] = {}
        for partition, offset, at_ms, carrier in rows.collect():
            batch = batches.of((partition, offset))
            end = (at_ms // _MINUTE_MS + 1) * _MINUTE_MS
            if batch and end <= batches.watermarks[batch - 1]:
                found.setdefault(batch, []).append(((partition, offset), (end, carrier)))
        return found

    def _expected(self, name: str, *, over: Any = None) -> list[tuple[str, str]]:
        flights = self.flights if over is None else over
        flights.createOrReplaceTempView("flights")
        return [
            (row["key"], row["value"]) for row in self._spark.sql(self._queries[name].sql).collect()
        ]

    def _written(self, out: Path, name: str) -> list[tuple[str, str]]:
        if self._table:
            return tables.written(self._table, self._folder, str(out), name)
        rows = self._spark.read.parquet(str(out / name)).select("key", "value").collect()
        return [(row["key"], row["value"]) for row in rows]

    def _topic(self, topic: str) -> Any:
        options = {
            "kafka.bootstrap.servers": self._servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "endingOffsets": "latest",
        }
        return self._spark.read.format("kafka").options(**options).load()


def _place(key: str) -> Place:
    partition, offset = key.split("-")
    return int(partition), int(offset)
