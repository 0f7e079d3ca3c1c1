"""A remote over TCP in a process of its own, with faults to switch on, and clients for it.

A request is a line `NUMBER TEXT`, its answer `NUMBER TEXT-answer`. A line `!{json}` on any
connection changes how the server behaves from then on (`Manners`), and is answered by `!`.

    python -m tests.headgate_async.remote PORT LATENCY_MS [LOG]

With LOG, each request's text is written there as it comes in, with its begin and its end.
"""

import asyncio
import contextlib
import json
import random
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any


@dataclass(frozen=True)
class Manners:
    """How the server behaves."""

    latency_ms: float = 2.0
    jitter_ms: float = 0.0  # added at random, so that answers come out of order
    failing: float = 0.0  # share of the requests answered by `NUMBER !error`
    hanging: float = 0.0  # share never answered
    twice: float = 0.0  # share answered twice
    closing: float = 0.0  # share at which the connection is cut instead
    refusing: bool = False  # cuts each new connection at once


class Server:
    """The state that all connections share."""

    def __init__(self, latency_ms: float, log: IO[str] | None) -> None:
        self.manners = Manners(latency_ms=latency_ms)
        self.log = log
        self.random = random.Random(5)


class Connection(asyncio.Protocol):
    """Answers one client's requests, those that came together by one timer."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.rest = b""
        self.transport: Any = None
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self.server.manners.refusing:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        if lines and any(line.startswith(b"!") for line in lines):
            lines = [line for line in lines if not self._command(line)]
        if self.server.log is not None:
            self.server.log.writelines(f"> {line.partition(b' ')[2].decode()}\n" for line in lines)
            self.server.log.flush()
        manners = self.server.manners
        if replace(manners, latency_ms=2.0) == Manners():
            self.loop.call_later(manners.latency_ms / 1000, self._answer, lines)
        else:
            self._rudely(lines, manners)

    def _command(self, line: bytes) -> bool:
        if line.startswith(b"!"):
            self.server.manners = replace(self.server.manners, **json.loads(line[1:]))
            self.transport.write(b"!\n")
            return True
        return False

    def _rudely(self, lines: list[bytes], manners: Manners) -> None:
        chance = self.server.random.random
        for line in lines:
            latency = (manners.latency_ms + chance() * manners.jitter_ms) / 1000
            if chance() < manners.closing:
                self.transport.abort()
                return
            if chance() < manners.hanging:
                continue
            if chance() < manners.failing:
                line = line.partition(b" ")[0] + b" !error"
            self.loop.call_later(latency, self._answer, [line])
            if chance() < manners.twice:
                self.loop.call_later(latency * 1.5, self._answer, [line])

    def _answer(self, lines: list[bytes]) -> None:
        if self.server.log is not None:
            self.server.log.writelines(f"< {line.partition(b' ')[2].decode()}\n" for line in lines)
            self.server.log.flush()
        if not self.transport.is_closing() and lines:
            self.transport.write(b"-answer\n".join(lines) + b"-answer\n")


async def _serve(port: int, latency_ms: float, log: str | None) -> None:
    with open(log, "a") if log else contextlib.nullcontext() as file:
        server = Server(latency_ms, file)
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(
            lambda: Connection(server), "127.0.0.1", port, backlog=1024
        )
        print("listening", flush=True)  # noqa: T201 - the parent waits for it
        await listening.serve_forever()


class Remote:
    """The server's process, for tests and benchmarks."""

    def __init__(
        self, *, latency_ms: float = 2.0, log: Path | None = None, port: int | None = None
    ) -> None:
        # Not at the top: the process of the server would take longer to import them than to start.
        from tests import pieces

        self.port = port if port is not None else pieces.free_port()
        self._command = [sys.executable, "-m", __name__, str(self.port), str(latency_ms)]
        self._command += [str(log)] if log else []
        self.start()

    def start(self) -> None:
        """Start the process, with its first manners, and wait until it listens."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "listening\n"

    def behave(self, **manners: Any) -> None:
        """Change how it behaves from now on."""
        refusing = "refusing" in manners
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as one:
            one.sendall(b"!" + json.dumps(manners).encode() + b"\n")
            assert one.recv(2) == b"!\n" or refusing

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def remote(**options: Any) -> Iterator[Remote]:
    """Run a remote for as long as the block."""
    made = Remote(**options)
    try:
        yield made
    finally:
        made.end()


class RemoteFailed(Exception):
    """The remote answered with an error."""


class Client(asyncio.Protocol):
    """Asks over one connection, any number of questions at once; answers come in any order.

    What is asked in one step of the loop goes out in one write.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[bytes, asyncio.Future[str]] = {}
        self._number = 0
        self._out: list[bytes] = []
        self._rest = b""
        self._transport: Any = None
        self._lost: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self, text: str) -> "asyncio.Future[str]":
        """Return the future answer."""
        if self._lost is not None:
            raise self._lost
        self._number += 1
        number = b"%d" % self._number
        future = self._waiting[number] = self._loop.create_future()
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(number + b" " + text.encode())
        return future

    def _flush(self) -> None:
        out, self._out = self._out, []
        self._transport.write(b"\n".join(out) + b"\n")

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        waiting = self._waiting
        for line in lines:
            number, _, answer = line.partition(b" ")
            future = waiting.pop(number, None)  # None: answered twice, or too late
            if future is not None and not future.done():
                if answer.startswith(b"!"):
                    future.set_exception(RemoteFailed(answer.decode()))
                else:
                    future.set_result(answer.decode())

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = ConnectionResetError("the remote closed the connection")
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._lost)
        self._waiting.clear()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


@contextlib.asynccontextmanager
async def connect(port: int) -> AsyncIterator[Client]:
    """Open a client; the port is bound by `functools.partial`."""
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(Client, "127.0.0.1", port)
    try:
        yield client
    finally:
        transport.close()


class BlockingClient:
    """Asks one question after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._file = self._socket.makefile("rb")

    def ask(self, text: str) -> str:
        """Return the answer."""
        self._socket.sendall(b"1 " + text.encode() + b"\n")
        line = self._file.readline()
        if not line:
            raise ConnectionResetError("the remote closed the connection")
        answer = line.rstrip(b"\n").partition(b" ")[2].decode()
        if answer.startswith("!"):
            raise RemoteFailed(answer)
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()


@contextlib.contextmanager
def connect_blocking(port: int) -> Iterator[BlockingClient]:
    """Open a blocking client."""
    client = BlockingClient(port)
    try:
        yield client
    finally:
        client.close()


if __name__ == "__main__":
    log_ = sys.argv[3] if len(sys.argv) > 3 else None
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2]), log_))
