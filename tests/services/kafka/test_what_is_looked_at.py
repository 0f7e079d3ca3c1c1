"""A look at the brokers reads what names Kafka alone, however many other queries there are."""

from typing import Any

import pytest

from queries.selectors.kafka import sources
from queries.selectors.rows import newest_revisions
from tests.scenarios.stage import Stage

KAFKA = {
    "name": "flights",
    "format": "kafka",
    "options": {"kafka.bootstrap.servers": "one:9092", "subscribe": "flights"},
}


def test_definitions_that_do_not_name_kafka_are_not_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        stage.query(f"rate-{number}")
    reads = stage.query("reads", sources=[KAFKA])
    read: list[int] = []
    real = newest_revisions

    def noted(ids: list[int]) -> Any:
        read.extend(ids)
        return real(ids)

    monkeypatch.setattr("queries.selectors.kafka.sources.newest_revisions", noted)
    (found,) = sources.readings()
    assert found.query == reads
    assert read == [reads.pk]


def test_one_that_reads_it_since_its_newest_revision_is_found(stage: Stage) -> None:
    query = stage.query("delays")
    assert sources.readings() == []
    spec = query.revisions.get().spec | {"sources": [KAFKA]}
    query.revisions.create(number=2, kind="sql", spec=spec, author="ada", created_at=stage.now)
    assert [one.query for one in sources.readings()] == [query]
