"""The Kafka demo's applications and queries, in the JSON forms that a user writes.

Four queries read the topic that `kafka_feeder.py` fills, each another way of streaming:
micro-batches with async progress tracking, windows with state, real-time mode, and continuous
processing. The last two hold a core for each partition, and so have drivers of their own.
"""

from examples.flights import topics
from examples.flights.definitions import SCHEMA, DemoApplication, DemoQuery, Form

SHARED = "flights-kafka"
_CONF: Form = {"spark.sql.shuffle.partitions": "4", "spark.sql.session.timeZone": "UTC"}
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
    """Return the applications to make before the queries."""
    return [
        DemoApplication(
            name=SHARED,
            spec=_own("Two queries over Kafka in one driver.", master="local[2]"),
        )
    ]


def queries(servers: str) -> list[DemoQuery]:
    """Return the queries over the broker at `servers`."""
    return [
        DemoQuery(
            name=topics.CLEAN,
            application=SHARED,
            spec={
                "kind": "sql",
                "description": "Flights that flew, without the cancelled ones. Async progress "
                "tracking writes its offsets in the background, once per second.",
                "sources": [_source(servers, maxOffsetsPerTrigger="50000")],
                "sql": CLEAN,
                "sink": sink(
                    servers,
                    topics.CLEAN,
                    asyncProgressTrackingEnabled="true",
                    asyncProgressTrackingCheckpointIntervalMs="1000",
                ),
                "trigger": {"kind": "processing_time", "interval": "1 second"},
            },
        ),
        DemoQuery(
            name=topics.DELAYS,
            application=SHARED,
            spec={
                "kind": "sql",
                "description": "Flights and delays by carrier and minute of arrival; each batch "
                "writes the groups that it changed.",
                "sources": [
                    {
                        **_source(servers, maxOffsetsPerTrigger="50000"),
                        "watermark": {"column": "timestamp", "delay": "1 minute"},
                    }
                ],
                "sql": DELAYS,
                "sink": sink(servers, topics.DELAYS, mode="update"),
                "trigger": {"kind": "processing_time", "interval": "5 seconds"},
            },
        ),
        DemoQuery(
            name=topics.REAL_TIME,
            application_spec=_own("Real-time mode holds one core per partition permanently."),
            spec={
                "kind": "sql",
                "description": "Flights that left an hour late or more, milliseconds after their "
                "record arrived, in real-time mode.",
                "sources": [_source(servers)],
                "sql": LATE,
                "sink": sink(servers, topics.REAL_TIME, mode="update"),
                "trigger": {"kind": "real_time", "interval": "5 seconds"},
            },
        ),
        DemoQuery(
            name=topics.CONTINUOUS,
            application_spec=_own(
                "Continuous processing holds one core per partition permanently."
            ),
            start=False,
            spec={
                "kind": "sql",
                "description": "The same flights by continuous processing: at least once, and "
                "no progress from Spark; Headgate reads it from the checkpoint and the broker. "
                "Start it to see.",
                "sources": [_source(servers)],
                "sql": LATE,
                "sink": sink(servers, topics.CONTINUOUS),
                "trigger": {"kind": "continuous", "interval": "1 second"},
            },
        ),
    ]


def _own(description: str, *, master: str = _MASTER) -> Form:
    return {
        "description": description,
        "master": master,
        "memory": "1g",
        "conf": _CONF,
        "connectors": ["kafka"],
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
    return {
        "format": "kafka",
        "output_mode": mode,
        "options": {"kafka.bootstrap.servers": servers, "topic": topic, **options},
    }
