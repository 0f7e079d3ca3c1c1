"""A host of an attacker's: whether anything has reached it."""

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Yield a socket that an attacker listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        yield server


def reached(server: socket.socket) -> bool:
    """Return whether somebody has connected, or does so now."""
    try:
        connection, _ = server.accept()
    except TimeoutError:
        return False
    connection.close()
    return True
