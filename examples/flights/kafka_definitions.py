"""Define the Kafka demo's applications and queries, some of which call a remote store.

Four queries read the topic that `kafka_feeder.py` fills, each in a different way: micro-batches
with async progress tracking, windows with state, real-time mode, and continuous processing. The
last two occupy one core per partition, so they have their own drivers.
"""

from pathlib import Path
from typing import Any

from examples.flights import planes, topics
from examples.flights.definitions import CODE, SCHEMA, DemoApplication, DemoQuery, Form, sql_query

SHARED = "flights-kafka"
#: A core for each partition, and one to spare.
_MASTER = f"local[{topics.PARTITIONS + 1}]"

READ = f"""
SELECT key, timestamp, from_json(CAST(value AS STRING), '{SCHEMA}') AS flight
FROM flights
""".strip()

CLEAN = f"""
SELECT key, to_json(flight) AS value
FROM (
{READ}
)
WHERE flight.dep_delay IS NOT NULL AND flight.arr_delay IS NOT NULL
""".strip()

DELAYS = f"""
SELECT
    flight.carrier AS key,
    to_json(named_struct(
        'minute', window(timestamp, '1 minute').start,
        'carrier', flight.carrier,
        'flights', count(*),
        'late', count_if(flight.dep_delay >= 15),
        'mean_delay', round(avg(flight.dep_delay), 1)
    )) AS value
FROM (
{READ}
)
GROUP BY window(timestamp, '1 minute'), flight.carrier
""".strip()

LATE = f"""
SELECT key, to_json(flight) AS value
FROM (
{READ}
)
WHERE flight.dep_delay >= 60
""".strip()


def applications() -> list[DemoApplication]:
    """Return the applications to create before the queries."""
    spec = application("Two queries over Kafka in one driver.", master="local[2]")
    return [DemoApplication(name=SHARED, spec=spec)]


def queries(servers: str) -> list[DemoQuery]:
    """Return the queries for the broker at `servers`."""
    limited = _source(servers, maxOffsetsPerTrigger="50000")
    return [
        DemoQuery(
            name=topics.CLEAN,
            application=SHARED,
            spec=sql_query(
                "All flights except the cancelled ones. Async progress tracking writes the "
                "offsets in the background, once per second.",
                source=limited,
                sql=CLEAN,
                sink=sink(
                    servers,
                    topics.CLEAN,
                    asyncProgressTrackingEnabled="true",
                    asyncProgressTrackingCheckpointIntervalMs="1000",
                ),
                trigger={"kind": "processing_time", "interval": "1 second"},
            ),
        ),
        DemoQuery(
            name=topics.DELAYS,
            application=SHARED,
            spec=sql_query(
                "Flights and delays by carrier and minute of arrival; each batch writes the "
                "groups that it has changed.",
                source={**limited, "watermark": {"column": "timestamp", "delay": "1 minute"}},
                sql=DELAYS,
                sink=sink(servers, topics.DELAYS, mode="update"),
            ),
        ),
        DemoQuery(
            name=topics.REAL_TIME,
            application_spec=application(
                "Real-time mode holds one core per partition permanently."
            ),
            spec=sql_query(
                "Flights that left an hour late or more, in real-time mode: written milliseconds "
                "after their record arrives.",
                source=_source(servers),
                sql=LATE,
                sink=sink(servers, topics.REAL_TIME, mode="update"),
                trigger={"kind": "real_time", "interval": "5 seconds"},
            ),
        ),
        DemoQuery(
            name=topics.CONTINUOUS,
            application_spec=application(
                "Continuous processing holds one core per partition permanently."
            ),
            start=False,
            spec=sql_query(
                "The same flights, with continuous processing: at least once, and without "
                "progress from Spark; Headgate reads it from the checkpoint and the broker. "
                "Start the query to try it.",
                source=_source(servers),
                sql=LATE,
                sink=sink(servers, topics.CONTINUOUS),
                trigger={"kind": "continuous", "interval": "1 second"},
            ),
        ),
    ]


def application(
    description: str, *, master: str = _MASTER, shuffle_partitions: int = 4, **more: Any
) -> Form:
    """Return an application that reads from Kafka."""
    return {
        "description": description,
        "master": master,
        "memory": "1g",
        "conf": {
            "spark.sql.shuffle.partitions": str(shuffle_partitions),
            "spark.sql.session.timeZone": "UTC",
        },
        "connectors": ["kafka"],
        **more,
    }


def _source(servers: str, **options: str) -> Form:
    return {
        "name": "flights",
        "format": "kafka",
        "options": {
            "kafka.bootstrap.servers": servers,
            "subscribe": topics.FLIGHTS,
            "startingOffsets": "earliest",
            # The topic keeps an hour; a query that was stopped for longer goes on with what is
            # left, and its page counts what it lost.
            "failOnDataLoss": "false",
            **options,
        },
    }


def sink(servers: str, topic: str, *, mode: str = "append", **options: str) -> Form:
    """Return the sink that writes to a topic."""
    return {
        "format": "kafka",
        "output_mode": mode,
        "options": {"kafka.bootstrap.servers": servers, "topic": topic, **options},
    }


ASYNC_SHARED = "flights-async"


#: (topic that is written, function, description)
_QUERIES = (
    (
        topics.TAIL_NUMBERS,
        "planes_of_flights:with_planes",
        "Each flight with its plane, looked up in a Valkey that responds after 2 ms. Start the "
        "query: its Async tab shows the calls.",
    ),
    (
        topics.FIRST_FLIGHTS,
        "planes_of_flights:first_in_window",
        "Each plane's first flight in ten minutes: a deduplication whose state is in the remote "
        "store, with identities that survive a replay. Start the query to try it.",
    ),
)


def async_applications() -> list[DemoApplication]:
    """Return the application that both queries share."""
    spec = application(
        "Two queries that call a remote store for each flight, many at once and in order within "
        "a tail number.",
        master="local[2]",
        shuffle_partitions=2,
        python_path=[str(CODE)],
    )
    return [DemoApplication(name=ASYNC_SHARED, spec=spec)]


def async_queries(servers: str, demo: Path) -> list[DemoQuery]:
    """Return the queries for the broker at `servers` and the store that `planes.py` runs."""
    store = str(demo / planes.ADDRESS)
    return [
        DemoQuery(
            name=topic,
            application=ASYNC_SHARED,
            start=False,  # one driver more than two cores can run next to the others
            spec={
                "kind": "python",
                "description": description,
                "function": function,
                "params": {"servers": servers, "topic": topics.FLIGHTS, "store": store},
                "sink": sink(servers, topic),
                "trigger": {"kind": "processing_time", "interval": "1 second"},
            },
        )
        for topic, function, description in _QUERIES
    ]
