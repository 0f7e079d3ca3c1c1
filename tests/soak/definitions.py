"""The soak's queries: the demo's flights, read from one topic into files and topics.

Two write each flight with its place in the topic, so that what is missing or twice can be named;
they share a driver. The other two have state, and share another.
"""

from dataclasses import dataclass
from typing import Any

from examples.flights import kafka_definitions, s3_definitions
from examples.flights.definitions import sql_query
from tests.soak import tables

FLIGHTS = "flights"
CLEAN = "flights-clean"
PLANES = "delays-by-plane"
PARTITIONS = 3
WATERMARK_S = 60

EACH = "each-flight"
WITH_STATE = "with-state"
TO_FILES = "flights-to-files"
TO_KAFKA = "flights-to-kafka"
BY_MINUTE = "delays-by-minute"
BY_PLANE = "delays-by-plane"

CLEAN_FLIGHTS = f"""
SELECT
    concat(partition, '-', offset) AS key,
    to_json(named_struct('partition', partition, 'offset', offset, 'flight', flight)) AS value
FROM (
SELECT partition, offset, flight FROM (
{kafka_definitions.READ.replace("SELECT key,", "SELECT partition, offset,")}
)
)
WHERE flight.dep_delay IS NOT NULL AND flight.arr_delay IS NOT NULL
""".strip()

PLANES_SO_FAR = f"""
SELECT
    flight.tailnum AS key,
    to_json(named_struct(
        'flights', count(*),
        'late', count_if(flight.dep_delay >= 15),
        'delay', sum(flight.dep_delay)
    )) AS value
FROM (
{kafka_definitions.READ}
)
WHERE flight.tailnum IS NOT NULL
GROUP BY flight.tailnum
""".strip()


@dataclass(frozen=True, slots=True)
class SoakQuery:
    """One query: its application, its definition, and the SQL that a batch repeats."""

    name: str
    application: str
    spec: dict[str, Any]

    @property
    def sql(self) -> str:
        """The query's SQL over the view `flights`."""
        return str(self.spec["sql"])


def applications(
    endpoint: str | None, table: str, out: str, standby: str
) -> dict[str, dict[str, Any]]:
    """Return the applications by name.

    With an S3 endpoint, their checkpoints can be there; with a format of tables, they have its
    connector and a Spark that it is for.
    """
    each = _application("Each flight into files and into Kafka, in one driver.", endpoint)
    with_state = _application(
        "Windows with a watermark, and totals by plane in update mode.", endpoint
    )
    for form in (each, with_state):
        form["standby"] = standby
        if table:
            tables.equip(form, table, out)
    return {EACH: each, WITH_STATE: with_state}


def queries(servers: str, out: str, table: str) -> list[SoakQuery]:
    """Return the queries over the broker at `servers`.

    Files are written below `out`, or tables of the format `table` if it is not empty.
    """

    def written(name: str) -> dict[str, Any]:
        return tables.sink(table, out, name) if table else _files(out, name)

    source = {
        "name": "flights",
        "format": "kafka",
        "options": {
            "kafka.bootstrap.servers": servers,
            "subscribe": FLIGHTS,
            "startingOffsets": "earliest",
        },
    }
    late = {"column": "timestamp", "delay": f"{WATERMARK_S} seconds"}

    def define(name: str, application: str, **more: Any) -> SoakQuery:
        spec = sql_query("", source=more.pop("source", source), **more)
        return SoakQuery(name, application, spec)

    return [
        define(TO_FILES, EACH, sql=CLEAN_FLIGHTS, sink=written(TO_FILES)),
        define(TO_KAFKA, EACH, sql=CLEAN_FLIGHTS, sink=kafka_definitions.sink(servers, CLEAN)),
        define(
            BY_MINUTE,
            WITH_STATE,
            source={**source, "watermark": late},
            sql=kafka_definitions.DELAYS,
            sink=written(BY_MINUTE),
        ),
        define(
            BY_PLANE,
            WITH_STATE,
            sql=PLANES_SO_FAR,
            sink=kafka_definitions.sink(servers, PLANES, mode="update"),
        ),
    ]


def _application(description: str, endpoint: str | None) -> dict[str, Any]:
    form = kafka_definitions.application(description, master="local[2]", shuffle_partitions=2)
    # The comparison reads from the checkpoint which batch read each record: of all batches.
    form["conf"]["spark.sql.streaming.minBatchesToRetain"] = "100000"
    if endpoint is not None:
        form["connectors"] = [*form["connectors"], "s3"]
        form["conf"] |= s3_definitions.store(endpoint, *s3_definitions.KEYS)
    return form


def _files(out: str, name: str) -> dict[str, Any]:
    return {"format": "parquet", "output_mode": "append", "options": {"path": f"{out}/{name}"}}
