"""Continuous on too few cores is refused when saved, and named when a topic's partitions grow.

The broker is asked for the partitions; nothing is launched.
"""

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
    assert f"{topic} has 5, and the application has 3 cores" in page
    assert "local[5] or more" in page
