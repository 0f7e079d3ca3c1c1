"""Records that a sink's topic does not accept: named with the settings that mend it."""

from typing import Any

import pytest
from django.test import Client

from queries.domain.failures.categories import Category
from queries.models.drivers import Run
from queries.models.history import Failure
from tests.conftest_kafka import KafkaBroker
from tests.kafka.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.redis, pytest.mark.django_db]


def test_a_batch_that_is_too_large_is_named_and_so_is_the_query_that_waits_behind_it(
    world: World, broker: KafkaBroker, client: Client, operator: Any
) -> None:
    # Batches above the topic's limit, of records below it: split into parts as large as the whole.
    shared = {
        "kafka.bootstrap.servers": broker.servers,
        "kafka.batch.size": "400000",
        "kafka.linger.ms": "500",
        "kafka.request.timeout.ms": "3000",
        "kafka.delivery.timeout.ms": "20000",
    }
    small, large = broker.topic("small"), broker.topic("large")
    narrow, out = broker.topic("narrow", max_message_bytes="100000"), broker.topic("out")
    sinks = {"neighbour": (small, out), "culprit": (large, narrow)}
    for name, (topic, sink) in sinks.items():
        options = {**shared, "topic": sink}
        world.query(name, broker.servers, topic, sink={"format": "kafka", "options": options})
    one = {"kafka.bootstrap.servers": broker.servers, "topic": narrow}
    single = broker.topic("single")
    world.query("single", broker.servers, single, sink={"format": "kafka", "options": one})
    broker.produce(small, [(None, "first")])
    world.start("neighbour")
    world.wait(lambda: broker.watermarks(out)[0][1] == 1, "the neighbour writes")

    broker.produce(large, ((None, "x" * 20_000) for _ in range(40)))
    world.start("culprit")

    def waits() -> list[str]:
        broker.produce(small, [(None, "more")])
        rows = Run.objects.filter(query__name="neighbour", outcome="")
        return [text for row in rows for text in row.warnings if "culprit" in text]

    world.wait(waits, "the neighbour names the query that it waits for")
    failure = world.wait(
        lambda: Failure.objects.filter(run__query__name="culprit").first(), "the culprit fails"
    )
    assert failure.category == Category.DATA
    assert failure.policy == "POISON"
    assert "MESSAGE_TOO_LARGE" in failure.root_cause
    assert "neighbour" in failure.root_cause
    client.force_login(operator)
    page = client.get(f"/failures/{failure.pk}/").content.decode()
    assert "kafka.max.request.size" in page
    assert "max.message.bytes" in page
    world.stop("culprit")

    # One record above the limit is refused at once.
    broker.produce(single, [(None, "x" * 200_000)])
    world.start("single")
    failure = world.wait(
        lambda: Failure.objects.filter(run__query__name="single").first(), "one record fails"
    )
    assert (failure.category, failure.policy) == (Category.DATA, "POISON")
    assert not Failure.objects.filter(run__query__name="neighbour").exists()
