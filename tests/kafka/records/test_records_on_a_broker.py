"""The record of a topic at which a query fails is found on the failure's batch."""

import json

import pytest
from django.utils import timezone

from queries.domain.states import OperationOutcome
from queries.models.history import Failure
from queries.services.probes.inspections import begin_records, records_of
from tests.conftest_kafka import KafkaBroker
from tests.kafka.world import World

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.django_db(transaction=True)]


def test_the_record_that_breaks_a_batch_is_found_by_its_offset(
    world: World, broker: KafkaBroker
) -> None:
    topic = broker.topic("numbers")
    broker.produce(topic, [("k", str(number)) for number in range(1, 41)])
    broker.produce(topic, [("k", "0"), ("k", "7")])
    world.query(
        "inverse",
        broker.servers,
        topic,
        sql="SELECT 100 / CAST(CAST(value AS STRING) AS INT) AS x FROM records",
    )
    world.start("inverse")
    failure = world.wait(
        lambda: Failure.objects.filter(run__query__name="inverse").first(), "fails"
    )
    assert failure is not None
    assert failure.batch == 0
    query = world.row("inverse")
    operation = begin_records(query=query, batch=0, actor="aude", now=timezone.now(), rows=5)

    def ended() -> bool:
        operation.refresh_from_db()
        return bool(operation.outcome)

    world.wait(ended, "the records are read")
    assert operation.outcome == OperationOutcome.DONE, operation.detail.text
    seen = records_of(operation, launcher=world.launcher, now=timezone.now())
    assert seen is not None
    assert "DIVIDE_BY_ZERO" in seen["failing"]["error"]
    [source] = seen["sources"]
    assert (source["source"], source["looked_at"]) == ("records", 42)
    failing = next(row for row in source["records"] if row["record"] == seen["failing"]["record"])
    told = json.loads(failing["text"])
    assert (told["offset"], told["value"], told["key"]) == (40, "0", "k")
