"""The system's health sees the Spark UI server without starting it."""

import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane.home import Home
from installation.machine import claims
from queries.services.system.parts import spark_ui_part

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


@pytest.fixture
def listener(tmp_path: Path, settings: Any) -> Iterator[socket.socket]:
    """Return the listening socket of an `up` that this process stands for."""
    settings.HOME = Home(tmp_path)
    settings.HOME.make()
    with (
        claims.claim(settings.HOME, address="http://127.0.0.1/"),
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        listening.settimeout(0)
        settings.SPARK_UI_PORT = listening.getsockname()[1]
        yield listening


def _sentence() -> str:
    [part] = spark_ui_part(now=NOW)
    return f"{part.state}: {part.sentence}"


def test_a_listener_is_enough_and_gets_no_request(listener: socket.socket, settings: Any) -> None:
    claims.record(settings.HOME, "spark-ui", os.getpid())
    assert _sentence().startswith("ok: The Spark UI server is available on port")
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_without_the_listener_or_its_port_there_is_a_problem(
    listener: socket.socket, settings: Any
) -> None:
    assert "problem: " in _sentence()  # another program has the port
    claims.record(settings.HOME, "spark-ui", os.getpid())
    listener.close()
    assert "nothing of ours listens there" in _sentence()


def test_a_running_server_is_asked_once_it_has_had_time_to_start(
    listener: socket.socket, settings: Any
) -> None:
    for name in ("spark-ui", "spark-ui-server"):
        claims.record(settings.HOME, name, os.getpid())
    began = settings.HOME.run / "spark-ui-server.process"
    os.utime(began, times=(NOW.timestamp(), NOW.timestamp()))
    assert _sentence().startswith("ok: ")
    earlier = (NOW - timedelta(minutes=1)).timestamp()
    os.utime(began, times=(earlier, earlier))
    assert "problem: " in _sentence()
    assert "timed out" in _sentence()


def test_no_up_of_ours_has_no_such_part(tmp_path: Path, settings: Any) -> None:
    settings.HOME = Home(tmp_path)
    assert spark_ui_part(now=NOW) == ()
