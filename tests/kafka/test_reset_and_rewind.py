"""Reset and rewind of Kafka queries on a real broker: they begin exactly where they were told.

What a run wrote is told apart from what was there by its place in the sink's only partition.
"""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from queries.domain.protocol import RunState
from queries.domain.states import OperationOutcome
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Operation
from queries.services.checkpoints import rewind_and_reset
from queries.services.checkpoints.preview import preview_reset
from queries.services.checkpoints.source_starts import WantedStart
from queries.services.procedures.engine import advance, due_operations
from queries.tasks import PROCEDURES
from tests.conftest_kafka import KafkaBroker
from tests.scenarios.stage import Stage
from tests.spark.driver_under_test import DriverUnderTest

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.django_db]

PLAIN = "SELECT key, value FROM records"
COUNTED = (
    "SELECT CAST('n' AS STRING) AS key, CAST(count(*) AS STRING) AS value FROM records "
    "GROUP BY CAST('n' AS STRING)"
)


class Trial:
    """A Kafka query over two partitions, its rows going to another topic."""

    def __init__(
        self, driver: DriverUnderTest, broker: KafkaBroker, stage: Stage, root: Path, sql: str
    ) -> None:
        self.driver, self.broker, self.stage = driver, broker, stage
        self.source, self.sink = broker.topic("in", partitions=2), broker.topic("out")
        self.spec = self._spec(sql)
        stage.now = timezone.now()
        self.query: Query = stage.query("trial", **self.spec)
        Checkpoint.objects.filter(query=self.query).update(location=f"file://{root}")
        self.seen = 0

    def run(self, run: int) -> list[str]:
        """Run to the end of what there is; return the values written by this run."""
        location = Checkpoint.objects.get(query=self.query, retired_at=None).location
        self.driver.start(run, self.spec, checkpoint=location)
        ended = self.driver.wait_run(run, RunState.ENDED, RunState.FAILED)
        assert ended.state is RunState.ENDED, ended.error
        self.driver.drop(run)
        found = [record.value or "" for record in self.broker.read(self.sink)]
        new, self.seen = found[self.seen :], len(found)
        return new

    def write(self, partition: int, numbers: range) -> None:
        rows = [("k", f"{partition}-{number}") for number in numbers]
        self.broker.produce(self.source, rows, partition=partition)

    def done(self, operation: Operation) -> None:
        for _ in range(12):
            for pk in due_operations(now=timezone.now()):
                advance(pk, procedures=PROCEDURES, launcher=self.stage.launcher, now=timezone.now())
        operation.refresh_from_db()
        assert (operation.outcome, operation.detail.text) == (OperationOutcome.DONE, "")

    def reset(self, wish: WantedStart) -> None:
        self.done(
            rewind_and_reset.request_reset(
                query=self.query, wish=wish, actor="aude", now=timezone.now()
            )
        )

    def _spec(self, sql: str) -> dict[str, Any]:
        servers = {"kafka.bootstrap.servers": self.broker.servers}
        mode = "append" if sql == PLAIN else "complete"
        return {
            "sources": [
                {
                    "name": "records",
                    "format": "kafka",
                    "options": {**servers, "subscribe": self.source, "startingOffsets": "earliest"},
                }
            ],
            "kind": "sql",
            "sql": sql,
            "sink": {
                "format": "kafka",
                "output_mode": mode,
                "options": {**servers, "topic": self.sink},
            },
            "trigger": {"kind": "available_now"},
            "conf": {"spark.sql.shuffle.partitions": "1"},
        }


def test_a_stateless_query_begins_at_each_kind_of_place(
    driver: DriverUnderTest, broker: KafkaBroker, stage: Stage, tmp_path: Path
) -> None:
    trial = Trial(driver, broker, stage, tmp_path / "cps" / "trial", PLAIN)
    trial.write(0, range(30))
    trial.write(1, range(20))
    assert len(trial.run(2100)) == 50
    assert trial.run(2101) == []

    told = preview_reset(trial.query, WantedStart("earliest"))
    assert (told.refusal, told.records) == ("", 50)
    trial.reset(WantedStart("offsets", offsets={trial.source: {"0": 25}}))
    assert sorted(trial.run(2102)) == [f"0-{n}" for n in range(25, 30)]

    trial.reset(WantedStart("earliest"))
    assert len(trial.run(2103)) == 50

    time.sleep(0.01)  # the broker's times are of milliseconds
    border = datetime.now(UTC)
    time.sleep(0.01)
    trial.write(1, range(20, 24))
    assert len(trial.run(2104)) == 4
    trial.reset(WantedStart("time", at=border))
    assert sorted(trial.run(2105)) == [f"1-{n}" for n in range(20, 24)]

    trial.write(0, range(30, 40))
    trial.reset(WantedStart("latest"))
    trial.write(0, range(40, 43))
    assert sorted(trial.run(2106)) == ["0-40", "0-41", "0-42"]


def test_a_stateful_query_counts_from_there_on_without_its_state(
    driver: DriverUnderTest, broker: KafkaBroker, stage: Stage, tmp_path: Path
) -> None:
    trial = Trial(driver, broker, stage, tmp_path / "cps" / "trial", COUNTED)
    trial.write(0, range(30))
    trial.write(1, range(20))
    assert trial.run(2200)[-1] == "50"
    trial.reset(WantedStart("offsets", offsets={trial.source: {"0": 25, "1": 18}}))
    assert trial.run(2201)[-1] == "7"
    trial.write(0, range(5))
    assert trial.run(2202)[-1] == "12"
    trial.reset(WantedStart("earliest"))
    assert trial.run(2203)[-1] == "55"


def test_a_rewound_count_ends_where_it_ended_before(
    driver: DriverUnderTest, broker: KafkaBroker, stage: Stage, tmp_path: Path
) -> None:
    trial = Trial(driver, broker, stage, tmp_path / "cps" / "trial", COUNTED)
    for run in range(6):
        trial.write(run % 2, range(10))
        assert trial.run(2300 + run)[-1] == str(10 * (run + 1))
    trial.done(
        rewind_and_reset.request_rewind(
            query=trial.query, batch=2, actor="aude", now=timezone.now()
        )
    )
    assert trial.run(2310)[-1] == "60"
