"""A thousand viewers in one process: all read everything, some decode what they read.

    python -m benchmarks.live._viewers PORT COOKIE < sessions, and a line of topics for each viewer

It prints "open" once every stream has begun, then reads a line from its input, which ends it; then
a JSON line {seen: [[viewer, query, figure, time]…], updates: [how many updates each decoding viewer
had, and in how many seconds]}.
"""

import asyncio
import json
import random
import re
import sys
import time
import zlib
from typing import Any
from urllib.parse import urlencode

DECODING = 40  # viewers
JOINING = 20  # at a time
WARM = 100  # viewers before the memory of the others is measured
_ROW = re.compile(r'row-(\d+)-in\\?" class=\\?"num\\?">(\d+)/s')
_FIGURES = re.compile(r'id=\\?"figures-(\d+)\\?".{0,400}?<dt>Input</dt><dd>(\d+)/s', re.DOTALL)


class Stream(asyncio.Protocol):
    """A viewer's connection."""

    def __init__(self, request: bytes, decodes: bool) -> None:
        self.request, self.decodes = request, decodes
        self.open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.size = 0
        self.seen: list[tuple[int, int, float]] = []
        self.updates: list[float] = []
        self._rest = b""
        self._head: str | None = None
        self._unpack: Any = None
        self._text = ""

    def connection_made(self, transport: Any) -> None:
        """Ask for the stream."""
        transport.write(self.request)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report a stream that ends before it is told to."""
        if not self.open.done():
            self.open.set_exception(ConnectionError(f"{self._head}: {exc}"))

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        self.size += len(data)
        if self._head is None:
            self._rest += data
            head, end, self._rest = self._rest.partition(b"\r\n\r\n")
            if not end:
                self._rest = head
                return
            self._head = head.decode()
            if " 200 " not in self._head.partition("\r\n")[0]:
                self.open.set_exception(ConnectionError(self._head))
                return
            if "content-encoding: gzip" in self._head.lower():
                self._unpack = zlib.decompressobj(wbits=31)
            data, self._rest = self._rest, b""
        if not self.open.done() and self.size > 1_500:  # the headers, and a first part of the page
            self.open.set_result(None)
        if self.decodes:
            self._rest += data
            self._take(time.time())

    def _take(self, now: float) -> None:
        """Take the chunks of HTTP that are complete."""
        while (end := self._rest.find(b"\r\n")) > 0:
            size = int(self._rest[:end], 16)
            if len(self._rest) < end + 2 + size + 2:
                return
            body = self._rest[end + 2 : end + 2 + size]
            self._rest = self._rest[end + 2 + size + 2 :]
            self._text += (self._unpack.decompress(body) if self._unpack else body).decode()
            events, end_of, self._text = self._text.rpartition("\n\n")
            if not end_of:
                continue
            found = [*_ROW.findall(events), *_FIGURES.findall(events)]
            self.seen += [(int(query), int(figure), now) for query, figure in found]
            if found:
                self.updates.append(now)


async def watch(port: int, cookie: str, sessions: list[str], pages: list[str]) -> None:
    """Open all streams, then wait for a line."""
    loop = asyncio.get_running_loop()
    chosen = set(random.Random(7).sample(range(len(pages)), min(DECODING, len(pages))))
    streams: list[Stream] = []
    joining = asyncio.Semaphore(JOINING)

    async def join(number: int) -> None:
        query = urlencode({"topics": pages[number], "cursor": ""})
        request = (
            f"GET /live/?{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Cookie: {cookie}={sessions[number % len(sessions)]}\r\n"
            "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/150.0\r\n"
            "Accept: text/event-stream\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"
            "Accept-Language: en-US,en;q=0.9\r\nCache-Control: no-cache\r\n"
            "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\n\r\n"
        )
        async with joining:
            stream = Stream(request.encode(), number in chosen)
            streams.append(stream)
            await loop.create_connection(lambda: stream, "127.0.0.1", port)
            await asyncio.wait_for(stream.open, 120)

    first = WARM  # each page among them
    await asyncio.gather(*(join(number) for number in range(first)))
    print("warm", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    await asyncio.gather(*(join(number) for number in range(first, len(pages))))
    print("open", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    decoding = [one for one in streams if one.decodes]
    answer = {
        "seen": [[n, *one] for n, stream in enumerate(decoding) for one in stream.seen],
        "updates": [stream.updates for stream in decoding],
        "bytes": sum(stream.size for stream in streams),
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(
        watch(
            int(sys.argv[1]),
            sys.argv[2],
            json.loads(sys.stdin.readline()),
            json.loads(sys.stdin.readline()),
        )
    )
