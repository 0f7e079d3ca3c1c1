"""Define the demo's applications and queries, in the JSON form that a user writes.

Four queries read the flights that `feeder.py` replays: two share an application and its pools, one
is Python code in its own application, and one has a real bug.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.flights import feeder

Form = dict[str, Any]

CODE = Path(__file__).resolve().parent / "code"
SCHEMA = (
    "scheduled TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, distance INT, dep_delay INT, arr_delay INT"
)
APPLICATION: Form = {
    "master": "local[2]",
    "memory": "1g",
    "conf": {
        # 200, Spark's default, would cost seconds a batch on two cores.
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
    },
}
EVERY_5_SECONDS: Form = {"kind": "processing_time", "interval": "5 seconds"}

FLIGHT_DELAYS = """
SELECT /*+ COALESCE(1) */
    window(scheduled, '1 minute').start AS minute,
    origin,
    carrier,
    count(*) AS flights,
    count_if(dep_delay >= 15) AS late,
    avg(dep_delay) AS mean_delay
FROM flights
GROUP BY window(scheduled, '1 minute'), origin, carrier
""".strip()

LONG_DELAYS = """
SELECT /*+ COALESCE(1) */
    f.scheduled, a.name AS airline, f.flight, f.origin, f.dest, f.dep_delay, f.arr_delay
FROM flights f
JOIN airlines a ON f.carrier = a.carrier
WHERE f.arr_delay >= 60
""".strip()

DELAY_RECOVERY = """
SELECT
    scheduled, carrier, flight, origin, dest, dep_delay, arr_delay,
    arr_delay / dep_delay AS recovery
FROM flights
WHERE arr_delay IS NOT NULL
""".strip()


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """One query of the demo, with the arguments of the catalog's `create_query`."""

    name: str
    spec: Form
    application: str = ""  # "" gives it one of its own
    application_spec: Form | None = None
    start: bool = True  # at the first run
    checkpoint: str = ""  # "" gives it the default


@dataclass(frozen=True, slots=True)
class DemoApplication:
    """One application that queries share, with its scheduler pools and its access."""

    name: str
    spec: Form
    pools: list[Form] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)  # allowed paths
    secrets: dict[str, list[str]] = field(default_factory=dict)  # reference -> hosts


def applications() -> list[DemoApplication]:
    """Return the applications to create before the queries."""
    description = "Two queries in one driver, each in its own scheduler pool."
    pools: list[Form] = [
        {"name": "delays", "weight": 2},
        # The light one keeps a core to itself when both are busy.
        {"name": "alerts", "weight": 1, "min_share": 1},
    ]
    return [DemoApplication("flights", {**APPLICATION, "description": description}, pools)]


def queries(demo: Path) -> list[DemoQuery]:
    """Return the demo's queries; input, output and tables are below the `demo` folder."""
    flights = demo / "flights"
    out = demo / "out"
    source = _source(flights)
    airlines = {
        "name": "airlines",
        "format": "csv",
        "schema": "carrier STRING, name STRING",
        "options": {"path": str(flights / feeder.AIRLINES), "header": "true"},
    }
    return [
        DemoQuery(
            name="flight-delays",
            application="flights",
            spec=delays(
                demo,
                "flight-delays",
                "Flights and delays by minute, origin and carrier; each group is written once "
                "its minute is final.",
                pool="delays",
            ),
        ),
        DemoQuery(
            name="long-delays",
            application="flights",
            spec=sql_query(
                "Flights that arrived an hour late or more, with the airline's name from a static "
                "table.",
                source=source,
                tables=[airlines],
                sql=LONG_DELAYS,
                sink=_sink("json", out / "long-delays"),
                pool="alerts",
            ),
        ),
        DemoQuery(
            name="flights-by-hour",
            application_spec={
                **APPLICATION,
                "description": "A query in Python code, in a separate driver.",
                "python_path": [str(CODE)],
            },
            spec={
                "kind": "python",
                "description": "Flights by hour, upserted by foreachBatch into a SQLite table.",
                "function": "flights_by_hour:build",
                "params": {
                    "input": str(flights / feeder.INPUT),
                    "database": str(out / "flights-by-hour.sqlite3"),
                    "max_files_per_trigger": 20,
                },
                "trigger": EVERY_5_SECONDS,
            },
        ),
        DemoQuery(
            name="delay-recovery",
            application_spec=APPLICATION,
            start=False,
            spec=sql_query(
                "How much of its delay a flight made up in the air. The query has a real bug: "
                "some flights leave on time. Start it, watch it fail, and read the failure "
                "history, which shows the cause and the fix.",
                source=source,
                sql=DELAY_RECOVERY,
                sink=_sink("json", out / "delay-recovery"),
            ),
        ),
    ]


def delays(demo: Path, name: str, description: str, **more: Any) -> Form:
    """Return the query with windows and state over the flights; its output is in `out/NAME`."""
    source = _source(demo / "flights")
    return sql_query(
        description,
        source={**source, "watermark": {"column": "scheduled", "delay": "30 seconds"}},
        sql=FLIGHT_DELAYS,
        sink=_sink("parquet", demo / "out" / name),
        **more,
    )


def sql_query(
    description: str, *, source: Form, trigger: Form = EVERY_5_SECONDS, **more: Any
) -> Form:
    """Return a SQL query over one source; `more` contains `sql`, `sink` and any other fields."""
    return {
        "kind": "sql",
        "description": description,
        "sources": [source],
        "trigger": trigger,
        **more,
    }


def _source(flights: Path) -> Form:
    return {
        "name": "flights",
        "format": "json",
        "schema": SCHEMA,
        "options": {
            "path": str(flights / feeder.INPUT),
            "maxFilesPerTrigger": "20",
            # The feeder keeps the newest files only; a query that was stopped for long
            # continues with those that are left.
            "ignoreMissingFiles": "true",
        },
    }


def _sink(kind: str, path: Path) -> Form:
    # Without `retention` the sink's own log would name every file it has ever written.
    return {
        "format": kind,
        "output_mode": "append",
        "options": {"path": str(path), "retention": "7d"},
    }
