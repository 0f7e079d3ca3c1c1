"""Streams of live pages, opened as a browser opens them: through Django, and served below it."""

import asyncio
import json
import zlib
from collections.abc import Callable, Collection
from typing import Any, Self
from urllib.parse import urlencode

from asgiref import testing
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.test import Client

from queries.views.console.fragments import Viewer
from queries.views.console.hub import Hub
from queries.views.console.live import below_django

Communicator: Any = testing.ApplicationCommunicator
LIMIT_S = 60  # generous: the machine may be busy


def events_of(text: str) -> list[tuple[int, str, str]]:
    """Return the (tab, event, data) of a stream's text; a part that is not complete is left out."""
    found = []
    for part in text.split("\n\n")[:-1]:
        lines = [line.removeprefix("data: ") for line in part.split("\n") if line[:4] == "data"]
        if lines:
            said = json.loads("\n".join(lines[1:]))
            found.append((int(lines[0]), said["event"], said["data"]))
    return found


class Reader:
    """A viewer of a hub that takes all that it is sent at once, or waits before the next part."""

    def __init__(self, packed: bool = False) -> None:
        self.viewer = Viewer(7, "", packed)
        self.bodies: list[bytes] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.viewer.open(self._send, ends_at=float("inf"), retry_ms=1000)

    async def _send(self, message: dict[str, Any]) -> None:
        await self.takes.wait()
        self.bodies.append(message["body"])

    @property
    def events(self) -> list[tuple[int, str, str]]:
        """Return all events so far."""
        return events_of(b"".join(self.bodies).decode())

    def said(self, event: str) -> list[str]:
        """Return the data of all events with a name."""
        return [data for _, name, data in self.events if name == event]

    async def join(self, hub: Hub, *topics: str, cursor: str = "") -> Self:
        """Look at a page with these topics."""
        await hub.join(self.viewer, [(frozenset(topics), cursor)])
        return await self.until(lambda: bool(self.said("tick")))

    async def until(self, true: Callable[[], bool]) -> Self:
        """Wait until something is true."""
        async with asyncio.timeout(LIMIT_S):
            while not true():
                await asyncio.sleep(0.01)
        return self


class Stream:
    """A response of the console's ASGI application, read as it comes."""

    def __init__(self, client: Client, topics: Collection[str], **headers: str) -> None:
        cookie = f"{settings.SESSION_COOKIE_NAME}={client.session.session_key}"
        given = {"host": "localhost", "cookie": cookie, **headers}
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/live/",
            "raw_path": b"/live/",
            "query_string": urlencode([("topics", each) for each in topics]).encode(),
            "root_path": "",
            "headers": [
                (name.replace("_", "-").encode(), value.encode()) for name, value in given.items()
            ],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8000),
        }
        self.status = 0
        self.headers: dict[str, str] = {}
        self.text = ""
        self._unpack: Any = None
        self._all: Any

    async def open(self) -> Self:
        """Send the request; read the head of the response."""
        self._all = Communicator(below_django(get_asgi_application()), self.scope)
        await self._all.send_input({"type": "http.request", "body": b"", "more_body": False})
        head = await self._all.receive_output(LIMIT_S)
        self.status = head["status"]
        self.headers = {name.decode().lower(): value.decode() for name, value in head["headers"]}
        if self.headers.get("content-encoding") == "gzip":
            self._unpack = zlib.decompressobj(wbits=31)
        return self

    async def read(self) -> bool:
        """Read the next part; return whether it was not the last."""
        message = await self._all.receive_output(LIMIT_S)
        body = message.get("body", b"")
        self.text += (self._unpack.decompress(body) if self._unpack else body).decode()
        return bool(message.get("more_body"))

    async def until(self, needle: str) -> str:
        """Read until a text has come; return everything so far."""
        while needle not in self.text:
            assert await self.read(), f"the stream ended without {needle!r}"
        return self.text

    async def rest(self) -> str:
        """Read to the end, and close the connection."""
        while await self.read():
            pass
        await self.leave()
        return self.text

    async def leave(self) -> None:
        """Close the connection; wait until the application has noticed."""
        await self._all.send_input({"type": "http.disconnect"})
        await self._all.wait(LIMIT_S)
