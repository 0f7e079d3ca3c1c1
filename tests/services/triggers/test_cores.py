"""A trigger that holds cores is counted against the application's when it is saved."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from queries.domain.errors import Invalid
from queries.models.checkpoints import SourceLag
from queries.models.definitions import Query
from queries.services.definitions import catalog

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9"}  # nobody answers there


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, settings: Settings) -> None:
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"
    settings.CONNECTORS_DIR = tmp_path / "connectors"
    jar = tmp_path / "connectors" / "kafka" / "spark-sql-kafka-0-10.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()


def spec(kind: str = "continuous", **reads: str) -> dict[str, Any]:
    reads = reads or {"subscribe": "in"}
    return {
        "kind": "sql",
        "sources": [{"name": "records", "format": "kafka", "options": {**SERVERS, **reads}}],
        "sql": "SELECT key, value FROM records",
        "sink": {
            "format": "kafka",
            "output_mode": "update",
            "options": {**SERVERS, "topic": "out"},
        },
        "trigger": {"kind": kind, "interval": "5 seconds"},
    }


def assigned(*partitions: int) -> dict[str, str]:
    return {"assign": json.dumps({"in": partitions})}


def application(master: str, name: str = "shared") -> None:
    raw = {"master": master, "connectors": ["kafka"]}
    catalog.create_application(name=name, spec=raw, actor="ana", now=NOW)


def create(name: str, raw: dict[str, Any]) -> Query:
    return catalog.create_query(name=name, spec=raw, actor="ana", now=NOW, application="shared")


def revise(query: Query, raw: dict[str, Any]) -> None:
    catalog.revise_query(query=query, spec=raw, expected_revision=None, actor="ana", now=NOW)


def lag(query: Query, topic: str, partitions: int) -> None:
    for number in range(partitions):
        SourceLag.objects.create(
            query=query, source=topic, partition=number, latest=9, earliest=0, seen_at=NOW
        )


def test_continuous_on_too_few_cores_is_refused() -> None:
    application("local[2]")
    with pytest.raises(Invalid, match=r"3 for source records\. The application has 2 cores"):
        create("flights", spec(**assigned(0, 1, 2)))
    assert not Query.objects.exists()
    create("flights", spec(**assigned(0, 1)))


def test_what_was_seen_of_a_topic_counts_when_its_broker_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("queries.services.kafka.topics.LOOK_S", 0.2)  # nobody will answer
    application("local[2]")
    query = create("flights", spec("processing_time"))
    revise(query, spec())  # nobody knows how many partitions it has: no refusal
    lag(query, "in", 5)
    lag(query, "another", 3)
    for kind in ("continuous", "real_time"):
        with pytest.raises(Invalid, match="5 for source records"):
            revise(query, {**spec(kind), "description": kind})
        with pytest.raises(Invalid, match="5 for source records"):
            catalog.plan_query(name="flights", spec=spec(kind), query=query)


def test_queries_of_one_application_share_its_cores() -> None:
    application("local[4]")
    create("first", spec(**assigned(0, 1)))
    with pytest.raises(Invalid, match="of which first holds 2"):
        create("second", spec(**assigned(0, 1, 2)))
    second = create("second", spec(**assigned(0, 1)))
    revise(second, spec("processing_time", **assigned(0, 1, 2)))


def test_an_application_cannot_shrink_below_what_its_queries_hold() -> None:
    application("local[4]")
    query = create("flights", spec(**assigned(0, 1, 2)))
    raw = {"master": "local[2]", "connectors": ["kafka"]}
    with pytest.raises(Invalid) as error:
        catalog.revise_application(
            application=query.application, spec=raw, expected_revision=None, actor="ana", now=NOW
        )
    problem = error.value.problems[0]
    assert (problem.field, problem.value) == ("master", "continuous")
    assert "would break query flights" in problem.message
    assert "2 cores (local[2])" in problem.message


def test_a_definition_without_a_shape_is_refused_as_ever() -> None:
    application("local[2]")
    broken = [
        {**spec(), "sources": ["nonsense"]},
        {**spec(), "trigger": "soon"},
        {**spec(), "sources": [{"name": "records", "format": "kafka", "options": 3}]},
    ]
    for raw in broken:
        with pytest.raises(Invalid):
            create("flights", raw)
