"""What is said of a trigger before Spark is what Spark says: the table is tried on a broker.

A text that is refused must fail in Spark, or never prove itself; one that is allowed must run.
"""

from pathlib import Path
from typing import Any

import pytest

from queries.domain.protocol import RunState, Want
from tests.conftest_kafka import KafkaBroker
from tests.domain.triggers.test_limits import TEXTS
from tests.spark.driver_under_test import DriverUnderTest

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

TRIGGERS = {
    "continuous": {"kind": "continuous", "interval": "1 second"},
    "real_time": {"kind": "real_time", "interval": "5 seconds"},
}
#: Spark takes these and never makes an epoch: worse than a refusal, and nothing to wait for.
SILENT = {"IN (SELECT"}


def texts(kind: str, standing: bool) -> list[str]:
    return [
        text
        for text, continuous, real_time in TEXTS
        if (continuous if kind == "continuous" else real_time) is standing
        and not (kind == "continuous" and any(part in text for part in SILENT))
    ]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    (folder / "names.csv").write_text("1\n2\n")
    return folder


@pytest.fixture(scope="module")
def topics(one_broker: KafkaBroker) -> dict[str, str]:
    one_broker.start()
    found = {name: one_broker.topic(name, partitions=2) for name in ("ticks", "more", "out")}
    for name in ("ticks", "more"):
        one_broker.produce(found[name], ((f"k{n % 4}", str(n)) for n in range(20)))
    return found


def spec(broker: KafkaBroker, topics: dict[str, str], names: Path, text: str, kind: str) -> Any:
    servers = {"kafka.bootstrap.servers": broker.servers}
    return {
        "kind": "sql",
        "sources": [
            {
                "name": name,
                "format": "kafka",
                "options": {**servers, "subscribe": topics[name], "startingOffsets": "earliest"},
            }
            for name in ("ticks", "more")
        ],
        "tables": [
            {
                "name": "names",
                "format": "csv",
                "schema": "k STRING",
                "options": {"path": str(names)},
            }
        ],
        "sql": text,
        "sink": {
            "format": "kafka",
            "output_mode": "append" if kind == "continuous" else "update",
            "options": {**servers, "topic": topics["out"]},
        },
        "trigger": TRIGGERS[kind],
    }


@pytest.mark.parametrize("kind", list(TRIGGERS))
def test_what_is_refused_when_saved_fails_in_spark(
    kind: str,
    driver: DriverUnderTest,
    broker: KafkaBroker,
    topics: dict[str, str],
    names: Path,
) -> None:
    refused = texts(kind, standing=False)
    assert len(refused) >= 3
    first = 5000 if kind == "continuous" else 6000
    for place, text in enumerate(refused):
        driver.start(first + 10 * place, spec(broker, topics, names, text, kind))
    for place, text in enumerate(refused):
        status = driver.wait_run(first + 10 * place, RunState.FAILED, RunState.RUNNING)
        assert status.state is RunState.FAILED, text
        driver.drop(first + 10 * place)


@pytest.mark.parametrize("kind", list(TRIGGERS))
def test_what_is_allowed_runs_in_spark(
    kind: str,
    driver: DriverUnderTest,
    broker: KafkaBroker,
    topics: dict[str, str],
    names: Path,
) -> None:
    allowed = texts(kind, standing=True)
    assert len(allowed) >= 3
    first = 7000 if kind == "continuous" else 8000
    for place, text in enumerate(allowed):
        run = first + 10 * place
        driver.start(run, spec(broker, topics, names, text, kind))
        status = driver.wait_run(run, RunState.RUNNING, RunState.FAILED)
        assert status.state is RunState.RUNNING, (text, status.error)
        driver.request_end(run, Want.STOP)
        driver.wait_run(run, RunState.ENDED)
        driver.drop(run)
