"""The async part of the Kafka demo: two queries that ask a remote store for each flight."""

from pathlib import Path

from examples.flights import kafka_definitions, planes, topics
from examples.flights.definitions import CODE, DemoApplication, DemoQuery, Form

SHARED = "flights-async"


def applications() -> list[DemoApplication]:
    """Return the application that both queries share."""
    return [
        DemoApplication(
            name=SHARED,
            spec={
                "description": "Two queries that call a remote store for each flight, many at "
                "once and in order within a tail number.",
                "master": "local[2]",
                "memory": "1g",
                "conf": {
                    "spark.sql.shuffle.partitions": "2",
                    "spark.sql.session.timeZone": "UTC",
                },
                "connectors": ["kafka"],
                "python_path": [str(CODE)],
            },
        )
    ]


def queries(servers: str, demo: Path) -> list[DemoQuery]:
    """Return the queries over the broker at `servers` and the store that `planes.py` runs."""
    return [
        DemoQuery(
            name=topics.TAIL_NUMBERS,
            application=SHARED,
            start=False,  # one driver more than two cores bear beside the others
            spec=_spec(
                servers,
                demo,
                topic=topics.TAIL_NUMBERS,
                function="planes_of_flights:with_planes",
                description="Each flight with its plane, looked up in a Valkey that answers after "
                "2 ms. Start it: its Async tab shows the calls.",
            ),
        ),
        DemoQuery(
            name=topics.FIRST_FLIGHTS,
            application=SHARED,
            start=False,  # one driver more than two cores bear beside the others
            spec=_spec(
                servers,
                demo,
                topic=topics.FIRST_FLIGHTS,
                function="planes_of_flights:first_in_window",
                description="A plane's first flight in ten minutes: a deduplication whose state "
                "is in the remote store, with identities that survive a replay. Start it to "
                "try it.",
            ),
        ),
    ]


def _spec(servers: str, demo: Path, *, topic: str, function: str, description: str) -> Form:
    return {
        "kind": "python",
        "description": description,
        "function": function,
        "params": {
            "servers": servers,
            "topic": topics.FLIGHTS,
            "store": str(demo / planes.ADDRESS),
        },
        "sink": kafka_definitions.sink(servers, topic),
        "trigger": {"kind": "processing_time", "interval": "1 second"},
    }
