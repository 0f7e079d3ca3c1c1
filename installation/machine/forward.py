"""Make ports of 127.0.0.1 reachable for the pods of the trial Kubernetes cluster.

`python forward.py ADDRESS PORT|FILE…` listens at ADDRESS, which only this host and its pods reach,
and passes each connection on to the same port of 127.0.0.1. Headgate's web process, its embedded
Valkey and the trial S3 gateway listen there only. A FILE contains a URL with the port, once there
is one. It needs only the standard library.
"""

import asyncio
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

_PART = 256 * 1024  # bytes that are passed on at a time
#: Seconds between attempts to listen: the address appears with the node's bridge.
_AGAIN_S = 1.0
#: Seconds for the other direction of a connection after one has ended.
_REST_S = 30.0
#: asyncio itself holds its tasks only weakly.
_HELD: set[asyncio.Task[None]] = set()


def command(address: str, places: Iterable[int | Path]) -> tuple[str, ...]:
    """Return the command that forwards these ports, and those of URLs in files."""
    return (sys.executable, "-IS", __file__, address, *map(str, places))


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
    halves = [
        asyncio.create_task(_pass_on(*pair))
        for pair in ((reader, far_writer), (far_reader, writer))
    ]
    _HELD.update(halves)
    try:
        await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(halves, timeout=_REST_S)  # an answer to what one end has finished
    finally:
        for half in halves:
            half.cancel()
        _HELD.difference_update(halves)
        for one in (writer, far_writer):
            with suppress(OSError):
                one.close()


async def _serve(address: str, place: str) -> None:
    """Listen as soon as that is possible, and then for ever."""
    is_told = False
    while True:
        try:
            port = int(place) if place.isascii() and place.isalnum() else _port_in(Path(place))
            serve = partial(_connect, port)
            server = await asyncio.start_server(serve, address, port)
            break
        except (OSError, ValueError) as error:
            if not is_told:
                sys.stderr.write(f"{place} is not forwarded yet: {error}\n")
            is_told = True
            await asyncio.sleep(_AGAIN_S)
    await server.serve_forever()


def _port_in(file: Path) -> int:
    """Return the port of the URL in a file. Raises OSError or ValueError without one."""
    port = urlsplit(file.read_text().strip()).port
    if port is None:
        raise ValueError(f"the URL in {file} has no port")
    return port


async def _serve_all(address: str, places: Iterable[str]) -> None:
    await asyncio.gather(*(_serve(address, place) for place in places))


def main(arguments: list[str]) -> None:
    """Forward until the process is ended."""
    address, *places = arguments
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve_all(address, places))


if __name__ == "__main__":
    main(sys.argv[1:])
