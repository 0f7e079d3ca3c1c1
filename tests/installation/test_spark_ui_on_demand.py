"""The Spark UI server runs only while it is used, and no connection is lost meanwhile."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from installation.spark_ui import on_demand, server
from tests import pieces

LIMIT_S = 60
#: A server that answers one connection with its pid, and ends: with the code in its argument.
_ONCE = """
import os, socket, sys
listener = socket.socket(fileno=0)
connection, _ = listener.accept()
connection.recv(1)
connection.sendall(str(os.getpid()).encode())
connection.close()
sys.exit(int(sys.argv[1]))
"""
#: One that answers until SIGTERM.
_FOR_EVER = "import os, socket\nlistener = socket.socket(fileno=0)\nwhile True:\n" + (
    "    connection, _ = listener.accept()\n    connection.sendall(str(os.getpid()).encode())\n"
    "    connection.close()\n"
)


@pytest.fixture
def listening() -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], int]]]:
    """Return what starts the script with a Python program as its server."""
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str, *arguments: str) -> tuple[subprocess.Popen[bytes], int]:
        port = pieces.free_port()
        command = [sys.executable, "-I", "-S", str(Path(on_demand.__file__)), "127.0.0.1"]
        command += [str(port), sys.executable, "-c", program, *arguments]
        started.append(subprocess.Popen(command))
        return started[-1], port

    yield start
    for one in started:
        one.terminate()
        one.wait(LIMIT_S)


def _asked(port: int) -> int:
    """Return the pid with which the server answers."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), LIMIT_S)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with connection:
        connection.sendall(b"?")
        return int(connection.recv(100))


def test_a_connection_starts_a_server_and_the_next_one_after_its_end_another(
    listening: Callable[..., tuple[subprocess.Popen[bytes], int]],
) -> None:
    script, port = listening(_ONCE, "0")
    first, second = _asked(port), _asked(port)
    assert first != second
    assert script.poll() is None


def test_a_server_that_fails_is_for_the_supervisor(
    listening: Callable[..., tuple[subprocess.Popen[bytes], int]],
) -> None:
    script, port = listening(_ONCE, "3")
    _asked(port)
    assert script.wait(LIMIT_S) == 1


def test_nothing_runs_before_the_first_connection_and_sigterm_ends_the_server_too(
    listening: Callable[..., tuple[subprocess.Popen[bytes], int]],
) -> None:
    script, port = listening(_FOR_EVER)
    assert psutil.Process(script.pid).children() == []
    pid = _asked(port)
    running = psutil.Process(pid)
    script.send_signal(signal.SIGTERM)
    assert script.wait(LIMIT_S) == 0
    assert not running.is_running()


def test_an_idle_server_ends_and_what_it_has_accepted_is_answered_first() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async def story() -> bytes:
        serving = asyncio.create_task(server.serve(application, listener.dup(), idle_s=0))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)  # and asks nothing yet
        await asyncio.sleep(3 * server.LOOK_EVERY_S)  # by then it accepts no others
        assert not serving.done()
        writer.write(b"GET /late HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await asyncio.wait_for(serving, LIMIT_S)
        return answer

    with listener:
        assert b"/late" in asyncio.run(story())
        with socket.create_connection(("127.0.0.1", port)):  # waits for the next server
            pass


def test_health_checks_do_not_keep_a_server_and_requests_do() -> None:
    asked: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])

    used = server._Used(application)
    before = used._used_at
    asyncio.run(used({"type": "http", "path": "/healthz"}, None, None))  # type: ignore[arg-type]
    assert used._used_at == before
    asyncio.run(used({"type": "http", "path": "/v/x/"}, None, None))  # type: ignore[arg-type]
    assert used._used_at > before
    assert asked == ["/healthz", "/v/x/"]
