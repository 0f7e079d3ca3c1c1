"""A Redis that hangs is waited for once: what reconciles must not wait for each of its nudges."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from controlplane import nudge, servers


class Hanging:
    """A server that takes connections and what they send, and never answers."""

    def __init__(self) -> None:
        self.asked = 0  # connections on which something was sent
        self.listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            try:
                taken, _ = self.listening.accept()
            except OSError:  # closed
                return
            self._open.append(taken)
            if taken.recv(1):
                self.asked += 1

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.listening.getsockname()[1]}/0"

    def close(self) -> None:
        for one in (self.listening, *self._open):
            one.close()


@pytest.fixture
def hanging(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    server = Hanging()
    settings.REDIS_URL = server.url
    settings.REDIS_SOCKET_TIMEOUT_S = 0.2
    monkeypatch.setattr(nudge, "_left_alone_until", 0.0)
    servers.connection.cache_clear()
    yield server
    servers.connection().close()
    servers.connection.cache_clear()
    server.close()


@pytest.mark.django_db(transaction=True)
def test_twenty_nudges_wait_for_it_once(hanging: Hanging) -> None:
    for number in range(10):
        nudge.changed(f"query:{number}")
        nudge.reconcile_soon(number)
    assert hanging.asked == 1


@pytest.mark.django_db(transaction=True)
def test_it_is_asked_again_after_a_while(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    nudge.changed("query:1")
    monkeypatch.setattr(nudge, "_left_alone_until", time.monotonic() - 1)
    nudge.changed("query:1")
    assert hanging.asked == 2


def test_a_client_asks_a_redis_that_is_silent_once(hanging: Hanging) -> None:
    with (
        servers.client(hanging.url, limit_s=0.2, retries=1) as client,
        pytest.raises(redis.TimeoutError),
    ):
        client.ping()
    assert hanging.asked == 1
