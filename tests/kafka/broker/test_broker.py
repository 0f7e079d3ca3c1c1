"""The trial broker: it outlives who started it, keeps its address, and asks for the password."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from controlplane.home import StartProblem
from headgate_ground import identities
from installation.machine import trial_servers
from tests import pieces
from tests.conftest_kafka import KafkaBroker

_START = """
import sys
from pathlib import Path
from installation.machine.trial_servers import Broker

Broker(Path(sys.argv[1]), jars=Path(sys.argv[2]), usual_port=None).start(Path(sys.argv[3]))
"""


@pytest.mark.kafka
def test_what_is_written_is_read_back_in_order(broker: KafkaBroker) -> None:
    topic = broker.topic("in", partitions=3)
    broker.produce(topic, ((f"k{n % 7}", str(n)) for n in range(200)))

    records = broker.read(topic)

    assert sorted(int(record.value or "") for record in records) == list(range(200))
    assert {record.partition for record in records} == {0, 1, 2}
    broker.delete_records(topic, {0: 5})
    assert broker.watermarks(topic)[0][0] == 5
    broker.add_partitions(topic, 5)
    assert set(broker.watermarks(topic)) == set(range(5))
    assert "tests-that-commit-nothing" not in broker.groups()
    broker.delete_topic(topic)


@pytest.mark.kafka
def test_records_and_address_outlive_a_stop_and_a_crash(broker: KafkaBroker) -> None:
    topic = broker.topic("kept")
    broker.produce(topic, [("a", "1")])
    before = broker.servers

    broker.stop()
    assert broker.broker.process() is None
    broker.start()
    broker.produce(topic, [("a", "2")])
    broker.kill()
    broker.start()

    assert broker.servers == before
    assert [record.value for record in broker.read(topic)] == ["1", "2"]


@pytest.mark.kafka
def test_the_second_listener_lets_in_with_the_password_only(broker: KafkaBroker) -> None:
    def topics(password: str) -> set[str]:
        client = AdminClient(
            {
                "bootstrap.servers": broker.sasl_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": broker.user,
                "sasl.password": password,
                "log_level": 0,
            }
        )
        return set(client.list_topics(timeout=5).topics)

    topic = broker.topic("closed")

    assert topic in topics(broker.password)
    with pytest.raises(KafkaException):
        topics("not the password")


@pytest.mark.kafka
def test_it_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    arguments = [str(folder), str(pieces.kafka_jars()), str(pieces.java().home)]
    subprocess.run(
        [sys.executable, "-c", _START, *arguments], check=True, timeout=120, env=_environment()
    )
    started = trial_servers.Broker(folder, jars=pieces.kafka_jars(), usual_port=None)
    try:
        process = started.process()
        assert process is not None
        assert os.getsid(process.pid) != os.getsid(0)
        assert started.start(pieces.java().home) is False  # it runs already
    finally:
        assert started.stop()
    assert not identities.is_alive(process.pid, process.start_time)
    assert started.stop() is False


def test_without_jars_it_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(StartProblem, match="make kafka"):
        trial_servers.Broker(tmp_path, usual_port=None).start(tmp_path)


def test_a_taken_port_is_named_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "kafka_2.13-4.2.1.jar").touch()
    broker = trial_servers.Broker(tmp_path, usual_port=None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", broker.address().sasl))
        taken.listen()
        with pytest.raises(StartProblem, match=f"Port {broker.address().sasl}"):
            broker.start(tmp_path)


@pytest.mark.kafka
def test_a_broker_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    broken = trial_servers.Broker(
        tmp_path / "broker",
        jars=pieces.kafka_jars(),
        usual_port=None,
        settings={"num.io.threads": "none"},
    )

    with pytest.raises(StartProblem, match=r"num\.io\.threads"):
        broken.start(pieces.java().home)

    assert broken.process() is None


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
