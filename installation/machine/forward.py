"""Make ports of 127.0.0.1 reachable for the pods of the trial Kubernetes cluster.

`python forward.py ADDRESS PORT…` listens at ADDRESS, which only this host and its pods reach, and
passes each connection on to the same port of 127.0.0.1. Headgate's web process, its embedded Valkey
and the trial S3 gateway listen there only. It needs only the standard library.
"""

import asyncio
import sys
from contextlib import suppress
from functools import partial

_PART = 256 * 1024  # bytes that are passed on at a time
#: Seconds between attempts to listen: the address appears with the node's bridge.
_AGAIN_S = 1.0


def command(address: str, ports: tuple[int, ...]) -> tuple[str, ...]:
    """Return the command that forwards these ports."""
    return (sys.executable, "-IS", __file__, address, *map(str, ports))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until the sender closes its half or either end is gone."""
    with suppress(OSError):
        while data := await reader.read(_PART):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _connect(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:  # nothing listens there now: the pod sees a closed connection
        writer.close()
        return
    try:
        await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
    finally:
        for one in (writer, far_writer):
            with suppress(OSError):
                one.close()


async def _serve(address: str, ports: tuple[int, ...]) -> None:
    servers = []
    for port in ports:
        while True:
            try:
                serve = partial(_connect, port)
                servers.append(await asyncio.start_server(serve, address, port))
                break
            except OSError as error:
                sys.stderr.write(f"not listening at {address}:{port} yet: {error}\n")
                await asyncio.sleep(_AGAIN_S)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main(arguments: list[str]) -> None:
    """Forward until the process is ended."""
    address, *ports = arguments
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(address, tuple(map(int, ports))))


if __name__ == "__main__":
    main(sys.argv[1:])
