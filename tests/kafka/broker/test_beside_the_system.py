"""`make run` keeps the trial broker running, leaves it to the drivers, and `make stop` ends it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from installation.machine import kafka
from tests import pieces
from tests.machine.test_up import LIMIT_S, System

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.redis,
    pytest.mark.faults,
    pytest.mark.timeout(600),
]


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    one = System(tmp_path / "home")
    one.environment.pop("HEADGATE_SECRETS", None)
    yield one
    one.end()


@pytest.fixture
def broker(system: System) -> Iterator[kafka.Broker]:
    folder = system.home / "kafka"
    folder.mkdir(parents=True)
    (folder / "jars").symlink_to(pieces.kafka_jars())
    one = kafka.Broker(folder, usual_port=None)
    yield one
    one.stop()


def test_it_is_started_healed_left_alone_and_ended(system: System, broker: kafka.Broker) -> None:
    assert not broker.is_set_up()  # jars alone are no wish: CI gets them too
    broker.address()

    said = system.start()
    assert f"Kafka     4.2.1 at {broker.servers}" in said
    secret = system.home / "secrets" / kafka.SECRET
    assert secret.read_text().strip() == broker.jaas()
    assert oct(secret.stat().st_mode & 0o777) == "0o600"

    first = broker.process()
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    system.until(lambda: "restarting it" in system.said())
    system.until(lambda: broker.process() not in (None, first))

    assert system.up is not None
    system.up.send_signal(signal.SIGINT)
    assert system.up.wait(LIMIT_S) == 0
    second = broker.process()
    assert second is not None
    assert second.alive()

    stopped = system.manage("stop")
    assert "Ended the Kafka broker. Its records are retained." in stopped.stdout
    assert broker.process() is None
    assert not second.alive()


def test_its_own_command_says_where_it_is_and_what_names_the_password(
    system: System, broker: kafka.Broker
) -> None:
    broker.address()
    started = system.manage("kafka")
    assert started.returncode == 0, started.stderr
    assert broker.servers in started.stdout
    assert broker.sasl_servers in started.stdout
    assert f"file:{kafka.SECRET}" in started.stdout
    assert broker.address().password not in started.stdout
    assert "The broker was already running." in system.manage("kafka").stdout
    assert "is stopped" in system.manage("kafka", "--stop").stdout
    assert "No Kafka broker is running." in system.manage("kafka", "--stop").stdout


def test_without_its_jars_the_command_says_how_to_get_them(system: System) -> None:
    refused = system.manage("kafka")
    assert refused.returncode == 1
    assert "make kafka" in refused.stderr
