"""Pods reach what listens on loopback only, through an address that they can reach."""

import http.client
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from installation.machine import forward
from tests.spark.driver_under_test import wait_for

#: Another address of this host, as that of a bridge is.
ADDRESS = "127.0.0.2"


@pytest.fixture
def port() -> Iterator[int]:
    """Return the port of a web server at 127.0.0.1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def forwarding(*places: int | Path) -> Iterator[None]:
    process = subprocess.Popen(forward.command(ADDRESS, places), stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def status(port: int) -> int | None:
    """Return the status of an answer from the address; None without any."""
    connection = http.client.HTTPConnection(ADDRESS, port, timeout=5)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return None
    else:
        return answer.status
    finally:
        connection.close()


def test_a_port_of_loopback_answers_at_the_address(port: int) -> None:
    assert status(port) is None
    with forwarding(port):
        wait_for(lambda: status(port) == 200, "an answer")


def test_a_port_that_a_file_names_later_is_forwarded_then(port: int, tmp_path: Path) -> None:
    file = tmp_path / "redis_url"
    with forwarding(file):
        file.write_text(f"redis://:secret@127.0.0.1:{port}/0\n")
        wait_for(lambda: status(port) == 200, "an answer")
