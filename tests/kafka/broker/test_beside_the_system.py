"""`make run` keeps trial servers running, leaves them to the drivers, and `make stop` ends them."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from installation.machine import trial_servers
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
def broker(system: System) -> Iterator[trial_servers.Broker]:
    folder = system.home / "kafka"
    folder.mkdir(parents=True)
    (folder / "jars").symlink_to(pieces.kafka_jars())
    one = trial_servers.Broker(folder, usual_port=None)
    yield one
    one.stop()


@pytest.fixture
def gateway(system: System) -> Iterator[trial_servers.Gateway]:
    (system.home / "s3" / "bin").mkdir(parents=True)
    (system.home / "s3" / "bin" / "versitygw").symlink_to(pieces.versitygw())
    one = trial_servers.Gateway(system.home / "s3", usual_port=None)
    yield one
    one.stop()


@pytest.mark.s3
def test_they_are_started_healed_left_alone_and_ended(
    system: System, broker: trial_servers.Broker, gateway: trial_servers.Gateway
) -> None:
    assert not broker.is_set_up()  # jars alone are no wish: CI gets them too
    broker.address()
    gateway.address()

    said = system.start()
    assert f"Kafka     4.2.1 at {broker.servers}" in said
    secret = system.home / "secrets" / trial_servers.SECRET
    assert secret.read_text().strip() == broker.jaas()
    assert oct(secret.stat().st_mode & 0o777) == "0o600"

    assert f"S3        bucket headgate at {gateway.place}" in said

    for server in (broker, gateway):
        first = server.process()
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        system.until(lambda name=server.name: f"The {name} has ended" in system.said())  # type: ignore[misc]
        system.until(lambda server=server, first=first: server.process() not in (None, first))  # type: ignore[misc]

    assert system.up is not None
    system.up.send_signal(signal.SIGINT)
    assert system.up.wait(LIMIT_S) == 0
    second = broker.process()
    assert second is not None
    assert second.alive()

    stopped = system.manage("stop")
    assert "Ended the Kafka broker. Its records are retained." in stopped.stdout
    assert "Ended the S3 gateway. Its objects are retained." in stopped.stdout
    assert broker.process() is None
    assert gateway.process() is None
    assert not second.alive()


def test_its_own_command_says_where_it_is_and_what_names_the_password(
    system: System, broker: trial_servers.Broker
) -> None:
    broker.address()
    started = system.manage("kafka")
    assert started.returncode == 0, started.stderr
    assert broker.servers in started.stdout
    assert broker.sasl_servers in started.stdout
    assert f"file:{trial_servers.SECRET}" in started.stdout
    assert broker.address().password not in started.stdout
    assert "The broker was already running." in system.manage("kafka").stdout
    assert "is stopped" in system.manage("kafka", "--stop").stdout
    assert "No Kafka broker is running." in system.manage("kafka", "--stop").stdout


def test_without_its_jars_the_command_says_how_to_get_them(system: System) -> None:
    refused = system.manage("kafka")
    assert refused.returncode == 1
    assert "make kafka" in refused.stderr
