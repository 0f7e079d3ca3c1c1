"""Preflights of a Kafka query on a real broker: what is new is read, nothing real is touched."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from queries.domain.protocol import RunState
from queries.domain.states import DriverKind, OperationOutcome
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver
from queries.models.history import Operation
from queries.services.probes.preflight import begin_preflight
from queries.services.procedures.engine import advance
from queries.tasks import PROCEDURES
from tests import pieces
from tests.conftest_kafka import KafkaBroker
from tests.scenarios.stage import Stage
from tests.spark.driver_under_test import DriverUnderTest
from tests.spark.probe_table import hashes

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.django_db(transaction=True)]

LIMIT_S = 240.0
COUNTS = (
    "SELECT CAST(key AS STRING) AS key, CAST(count(*) AS STRING) AS value FROM records "
    "GROUP BY CAST(key AS STRING)"
)


class Trial:
    """A query that has counted the keys of a topic, and a launcher for its probes."""

    def __init__(
        self, driver: DriverUnderTest, broker: KafkaBroker, stage: Stage, home: Path
    ) -> None:
        self.broker = broker
        self.launcher = LocalProcessLauncher(home / "drivers", home / "code")
        self.source, self.sink = broker.topic("in", partitions=2), broker.topic("out")
        self.checkpoint = home / "checkpoints" / "counts"
        application = stage.application("counts", connectors=["kafka"])
        self.query: Query = stage.query("counts", application="counts", **self.spec(COUNTS))
        assert self.query.application == application
        Checkpoint.objects.filter(query=self.query).update(location=f"file://{self.checkpoint}")
        broker.produce(self.source, ((f"k{n % 5}", str(n)) for n in range(100)))
        driver.start(4010, self.spec(COUNTS), checkpoint=f"file://{self.checkpoint}")
        ended = driver.wait_run(4010, RunState.ENDED, RunState.FAILED)
        assert ended.state is RunState.ENDED, ended.error
        driver.drop(4010)
        broker.produce(self.source, ((f"k{n % 7}", str(n)) for n in range(5000)))

    def spec(self, sql: str, **changes: Any) -> dict[str, Any]:
        servers = {"kafka.bootstrap.servers": self.broker.servers}
        options = {
            **servers,
            "subscribe": changes.get("topic", self.source),
            "startingOffsets": "earliest",
        }
        return {
            "kind": "sql",
            "sources": [{"name": "records", "format": "kafka", "options": options}],
            "sql": sql,
            "sink": {
                "format": "kafka",
                "output_mode": "update",
                "options": {**servers, "topic": self.sink},
            },
            "trigger": {"kind": "available_now"},
        }

    def real(self) -> tuple[Any, ...]:
        """Return all that a preflight must leave as it is."""
        return (
            hashes(self.checkpoint),
            self.broker.watermarks(self.source),
            self.broker.watermarks(self.sink),
            self.broker.groups(),
        )

    def tried(self, spec: dict[str, Any]) -> Operation:
        operation = begin_preflight(query=self.query, spec=spec, actor="aude", now=timezone.now())
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            now = timezone.now() + timedelta(seconds=1)
            advance(operation.pk, procedures=PROCEDURES, launcher=self.launcher, now=now)
            operation.refresh_from_db()
            if operation.outcome and not operation.to_undo:
                return operation
            time.sleep(0.2)
        raise AssertionError(operation.steps)


def test_a_topic_that_is_not_there_is_caught_and_nothing_real_is_touched(
    driver: DriverUnderTest,
    broker: KafkaBroker,
    stage: Stage,
    tmp_path: Path,
    settings: Any,
) -> None:
    settings.CONNECTORS_DIR = pieces.kafka_connector().parent
    trial = Trial(driver, broker, stage, tmp_path)
    before = trial.real()

    same = trial.tried(trial.spec(COUNTS))
    assert same.outcome == OperationOutcome.DONE, same.result
    judged = same.result["preflight"]
    assert judged["verdict"] == "passed", judged
    replay, fresh = judged["tries"]
    assert (replay["end"], replay["rows"]) == ("passed", 100)
    assert fresh["end"] == "passed"
    assert 900 < fresh["rows"] <= 1000  # a share of each partition, not the whole backlog
    assert judged["not_tried"] == [
        "writing to Kafka: its topic and permissions; the rows were discarded"
    ]

    missing = trial.tried(trial.spec(COUNTS, topic="no-such-topic"))
    assert missing.outcome == OperationOutcome.FAILED
    told = next(each for each in missing.result["preflight"]["tries"] if each["end"] == "failed")
    assert "topic" in told["meaning"].lower() or "lost" in told["meaning"].lower(), told
    assert told["way_out"]

    no_value = trial.tried(trial.spec(COUNTS.replace("AS value", "AS counted")))
    assert no_value.outcome == OperationOutcome.FAILED
    assert "there is no value column" in no_value.detail.text

    assert trial.real() == before
    assert Driver.objects.filter(kind=DriverKind.PROBE, state="ENDED").count() == 3
    assert not list((tmp_path / "checkpoints/.headgate/probes").glob("*"))
