"""Define the async part of the Kafka demo: two queries that call a remote store for each flight."""

from pathlib import Path

from examples.flights import kafka_definitions, planes, topics
from examples.flights.definitions import CODE, DemoApplication, DemoQuery

SHARED = "flights-async"


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


def applications() -> list[DemoApplication]:
    """Return the application that both queries share."""
    spec = kafka_definitions.application(
        "Two queries that call a remote store for each flight, many at once and in order within "
        "a tail number.",
        master="local[2]",
        shuffle_partitions=2,
        python_path=[str(CODE)],
    )
    return [DemoApplication(name=SHARED, spec=spec)]


def queries(servers: str, demo: Path) -> list[DemoQuery]:
    """Return the queries for the broker at `servers` and the store that `planes.py` runs."""
    store = str(demo / planes.ADDRESS)
    return [
        DemoQuery(
            name=topic,
            application=SHARED,
            start=False,  # one driver more than two cores can run next to the others
            spec={
                "kind": "python",
                "description": description,
                "function": function,
                "params": {"servers": servers, "topic": topics.FLIGHTS, "store": store},
                "sink": kafka_definitions.sink(servers, topic),
                "trigger": {"kind": "processing_time", "interval": "1 second"},
            },
        )
        for topic, function, description in _QUERIES
    ]
