"""Connections that send nothing, little or slowly are closed, and one address has so many."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from django.conf import settings as django_settings

from controlplane.servers import free_ports
from installation.machine import programs
from installation.web import connections, front
from installation.web.connections import Bounded, counted_as
from installation.web.front import bounded

LIMIT_S = 20


async def _application(scope: Any, receive: Any, send: Any) -> None:
    """Answer once the body is there, as Django does; `/early` answers before."""
    more = scope["path"] != "/early"
    while more:
        more = (await receive()).get("more_body", False)
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[int]:
    """Serve on a port, with limits that a test can wait for."""
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    monkeypatch.setattr(front, "BODY_S", 0.5)
    settings.CONNECTIONS_PER_ADDRESS = 20
    port = next(free_ports())
    config = uvicorn.Config(
        bounded(_application, most=10_000_000),
        port=port,
        http=Bounded,
        ws="none",
        lifespan="off",
        log_level="warning",
        server_header=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started:
        assert thread.is_alive()
    yield port
    server.should_exit = server.force_exit = True
    thread.join(LIMIT_S)
    assert not connections._open


@contextmanager
def talking(port: int, said: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as one:
        one.sendall(said)
        yield one


def heard(one: socket.socket) -> bytes:
    """Return all that comes until the other side closes; fail where it does not."""
    found = b""
    try:
        while block := one.recv(65536):
            found += block
    except ConnectionResetError:
        pass
    return found


WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\n"])
def test_a_request_without_a_whole_head_is_closed(port: int, said: bytes) -> None:
    with talking(port, said) as one:
        assert heard(one) == b""


def test_a_head_that_comes_byte_by_byte_is_closed(port: int) -> None:
    with talking(port, WHOLE + b"GET") as one:
        try:
            for _ in range(40):
                one.sendall(b"x")
                threading.Event().wait(0.1)
        except (BrokenPipeError, ConnectionResetError):
            return
    pytest.fail("it was kept")


@pytest.mark.guarantee("G-REQUEST-2")
def test_a_body_that_does_not_come_is_answered_408(port: int) -> None:
    with talking(port, POST + b"half") as one:
        told = heard(one)
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b"urn:headgate:problem:too-slow" in told


def test_a_body_after_its_answer_is_not_waited_for(port: int) -> None:
    with talking(port, POST.replace(b"POST / ", b"POST /early ") + b"half") as one:
        assert heard(one).endswith(b"ok")


def test_a_slow_body_that_keeps_the_rate_is_taken(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "SLOWEST", 10)
    head = POST.replace(b"Host: a", b"Host: a\r\nConnection: close")
    with talking(port, head) as one:
        for _ in range(10):
            one.sendall(b"x" * 10)
            threading.Event().wait(0.1)
        assert heard(one).startswith(b"HTTP/1.1 200 ")


@pytest.mark.guarantee("G-REQUEST-2")
def test_an_address_has_so_many_connections_and_room_again_once_one_is_closed(port: int) -> None:
    with ExitStack() as held:
        some = [held.enter_context(talking(port, POST)) for _ in range(20)]
        told = b""
        for _ in range(100):  # until the server has seen them all
            with talking(port, WHOLE) as one:
                one.settimeout(0.2)
                try:
                    told = one.recv(65536)
                except TimeoutError:
                    continue
            if b" 503 " in told:
                break
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"HEADGATE_CONNECTIONS_PER_ADDRESS" in told
        for one in some:
            one.close()
    for _ in range(100):  # until the server has seen that they are closed
        with talking(port, WHOLE.replace(b"Host: a", b"Host: a\r\nConnection: close")) as one:
            told = heard(one)
        if b" 503 " not in told:
            break
        threading.Event().wait(0.2)
    assert told.startswith(b"HTTP/1.1 200 ")
    assert b"server:" not in told.lower()


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("10.1.2.3", ""),  # a proxy speaks for many
        ("", ""),  # a socket of this machine's files
    ],
)
def test_what_an_address_counts_as(address: str, counted: str, settings: Any) -> None:
    settings.TRUSTED_PROXIES = ["10.0.0.0/8"]
    assert counted_as(address) == counted


def test_the_cap_leaves_room_for_twenty_tabs_of_several_people() -> None:
    assert django_settings.CONNECTIONS_PER_ADDRESS >= 5 * 20


@pytest.mark.guarantee("G-REQUEST-4")
@pytest.mark.parametrize("file", ["Dockerfile", "docker-compose.yml", "docs/several-hosts.md"])
def test_every_start_of_a_web_process_has_these_limits(file: str) -> None:
    flags = ("--no-server-header", "--ws", "--http", "installation.web.connections:Bounded")
    assert set(flags) <= set(programs._web())
    text = (Path(django_settings.BASE_DIR) / file).read_text()
    for flag in flags:
        assert text.count("--no-proxy-headers") == text.count(flag), flag
