"""Create the Kafka demo's topics, with their names and their retention."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

FLIGHTS = "flights"
CLEAN = "flights-clean"
DELAYS = "delays-by-carrier"
REAL_TIME = "flights-realtime"
CONTINUOUS = "flights-continuous"
TAIL_NUMBERS = "tail-numbers"
FIRST_FLIGHTS = "first-flights"
ALL = (FLIGHTS, CLEAN, DELAYS, REAL_TIME, CONTINUOUS, TAIL_NUMBERS, FIRST_FLIGHTS)
PARTITIONS = 5
#: An hour, and 50 MB a partition: a demo that runs for weeks must not fill the disk. Only
#: whole segments are deleted, so these are small as well.
_KEPT = {
    "retention.ms": "3600000",
    "retention.bytes": "52428800",
    "segment.ms": "600000",
    "segment.bytes": "10485760",
}


def create(servers: str, *, limit_s: float = 30) -> list[str]:
    """Create the missing topics and return their names.

    Raises `KafkaException` if the broker does not respond within the limit.
    """
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    there = set(admin.list_topics(timeout=limit_s).topics)
    new = [NewTopic(name, PARTITIONS, 1, config=_KEPT) for name in ALL if name not in there]
    made = []
    if new:
        for name, done in admin.create_topics(new, operation_timeout=limit_s).items():
            try:
                done.result(limit_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            else:
                made.append(name)
    return made
