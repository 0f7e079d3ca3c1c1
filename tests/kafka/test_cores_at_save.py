"""Continuous on too few cores is refused when saved, and named when a topic's partitions grow.

The broker is asked for the partitions; nothing is launched.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from queries.domain.errors import Invalid
from queries.models.definitions import Query
from queries.services.definitions import catalog
from queries.services.kafka.lag import look_at_sources
from tests.conftest_kafka import KafkaBroker
from tests.scenarios.stage import Stage
from tests.spark.driver_under_test import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, settings: Settings) -> None:
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"
    settings.CONNECTORS_DIR = tmp_path / "connectors"
    jar = tmp_path / "connectors" / "kafka" / "spark-sql-kafka-0-10.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()


def spec(broker: KafkaBroker, kind: str, **reads: str) -> dict[str, Any]:
    servers = {"kafka.bootstrap.servers": broker.servers}
    return {
        "kind": "sql",
        "sources": [{"name": "records", "format": "kafka", "options": {**servers, **reads}}],
        "sql": "SELECT key, value FROM records",
        "sink": {
            "format": "kafka",
            "output_mode": "update",
            "options": {**servers, "topic": "out"},
        },
        "trigger": {"kind": kind, "interval": "5 seconds"},
    }


def application(name: str, master: str) -> None:
    raw = {"master": master, "connectors": ["kafka"]}
    catalog.create_application(name=name, spec=raw, actor="ana", now=timezone.now())


def create(name: str, raw: dict[str, Any], application: str) -> Query:
    return catalog.create_query(
        name=name, spec=raw, actor="ana", now=timezone.now(), application=application
    )


@pytest.mark.parametrize("kind", ["continuous", "real_time"])
def test_too_few_cores_for_a_topic_are_refused_when_saved(broker: KafkaBroker, kind: str) -> None:
    topic = broker.topic("in", partitions=5)
    application("small", "local[2]")
    for reads in ({"subscribe": topic}, {"subscribePattern": f"{topic}.*"}):
        with pytest.raises(Invalid, match=r"5 for source records\. The application has 2 cores"):
            create("flights", spec(broker, kind, **reads), "small")
    application("large", "local[5]")
    create("flights", spec(broker, kind, subscribe=topic), "large")


def test_partitions_that_grow_beyond_the_cores_are_named_on_the_page(
    broker: KafkaBroker, client: Client, viewer: User
) -> None:
    topic = broker.topic("in", partitions=2)
    application("small", "local[3]")
    query = create("flights", spec(broker, "continuous", subscribe=topic), "small")
    client.force_login(viewer)
    look_at_sources(now=timezone.now(), query_ids=[query.pk])
    assert "core per source partition: " not in client.get("/queries/flights/").content.decode()

    broker.add_partitions(topic, 5)

    def looked() -> bool:  # a partition that is new may not have a leader yet
        look_at_sources(now=timezone.now(), query_ids=[query.pk])
        return query.lags.filter(source=topic).count() == 5

    wait_for(looked, "all partitions are seen")
    page = client.get("/queries/flights/").content.decode()
    assert f"{topic} has 5; the application has 3 cores" in page
    assert "local[5] or more" in page


# --- starting offsets -------------------------------------------------------------------------


def listing(broker: KafkaBroker, topic: str, **starts: dict[str, int]) -> dict[str, Any]:
    """Return a definition that begins at places by partition: option=partitions."""
    options = {name: json.dumps({topic: places}) for name, places in starts.items()}
    return spec(broker, "processing_time", subscribe=topic, **options)


@pytest.mark.parametrize("option", ["startingOffsets", "startingOffsetsByTimestamp"])
@pytest.mark.parametrize(
    ("places", "says"),
    [({"0": 0}, "does not list .* 1, .* 2;"), ({"0": 0, "1": 0, "2": 0, "3": 0}, "lists .* 3,")],
)
def test_starting_offsets_that_are_not_of_the_topics_partitions_are_refused_when_saved(
    broker: KafkaBroker, option: str, places: dict[str, int], says: str
) -> None:
    topic = broker.topic("three", partitions=3)
    application("small", "local[2]")
    with pytest.raises(Invalid, match=says) as refused:
        create("flights", listing(broker, topic, **{option: places}), "small")
    (problem,) = refused.value.problems
    assert problem.field == f"sources.0.options.{option}"
    create("flights", listing(broker, topic, **{option: {"0": 0, "1": 0, "2": 0}}), "small")


def test_offsets_of_a_topic_that_is_not_there_yet_or_of_a_checkpoint_with_batches_are_not_judged(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = broker.topic("three", partitions=3)
    application("small", "local[2]")
    create("early", listing(broker, f"{topic}-later", startingOffsets={"0": 0}), "small")
    catalog.create_query(
        name="copied",
        spec=listing(broker, topic, startingOffsets={"0": 0}),
        actor="ana",
        now=timezone.now(),
        application="small",
        checkpoint=f"file://{tmp_path}/checkpoints/there",
    )


def test_a_topic_that_has_grown_refuses_no_change_of_a_query_that_has_begun(
    broker: KafkaBroker, stage: Stage
) -> None:
    topic = broker.topic("grows")
    one = listing(broker, topic, startingOffsets={"0": 0})
    stage.now = timezone.now()
    stage.application("small", connectors=["kafka"])
    stage.query("flights", "small", **one)
    broker.add_partitions(topic, 3)
    one["description"] = "changed"
    change: dict[str, Any] = {
        "spec": one,
        "expected_revision": None,
        "actor": "ana",
        "now": timezone.now(),
    }
    with pytest.raises(Invalid, match="does not list"):
        catalog.revise_query(query=stage.row("flights"), **change)
    stage.up("flights", "small")
    catalog.revise_query(query=stage.row("flights"), **change)
