"""Serve drivers' Spark UIs on a separate origin, without any page of the console.

    /open/TICKET         redeems a ticket from the console for a secret path
    /v/PATH/…            the Spark UI of one driver, GET and HEAD
    /healthz             whether this server responds

A UI is requested on this host, at the port in the driver's row, and each request is signed for that
driver. The destination of a request never depends on anything that a driver writes or reports.
"""

import asyncio
from html import escape
from typing import Any

import httpx
from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from controlplane import jws
from installation.spark_ui import upstream
from installation.web.front import App, Receive, Scope, Send
from queries.services import spark_ui

#: Time limit for a complete answer, in seconds.
LIMIT_S = 120.0
_OVER = (
    403,
    "This Spark UI view has ended",
    "You signed out, the view expired, or the driver has ended. Open it from Headgate again.",
)
_UNREACHABLE = (
    502,
    "The Spark UI is not responding",
    "The driver may be starting or exiting. Reload the page.",
)
_NOT_IT = (
    502,
    "This is not the driver's Spark UI",
    "Another program responds on the port that Headgate assigned to the driver. Restart its "
    "application.",
)
_NOTHING = (404, "Nothing here", "Open a Spark UI from its application's page in Headgate.")
_READ_ONLY = (405, "The Spark UI is read-only here", "Use Headgate to stop queries and drivers.")


def application() -> App:
    """Return the ASGI application."""
    http = upstream.client()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"{scope['type']} is not served")
        _, first, second, rest = [*scope["path"].split("/", 3), "", "", ""][:4]
        if scope["method"] == "OPTIONS":  # sent by pages of a null origin: scripts' own requests
            await _preflight(send)
        elif scope["method"] not in ("GET", "HEAD"):
            await _page(send, *_READ_ONLY)
        elif scope["path"] == "/healthz":
            await _answer(send, 200, [(b"content-type", b"text/plain")], b"ok\n")
        elif first == "open" and second and not rest:
            await _open(http, second, send)
        elif first == "v" and second:
            await _show(http, scope, second, send)
        else:
            await _page(send, *_NOTHING)

    return serve


async def _open(http: httpx.AsyncClient, ticket: str, send: Send) -> None:
    path = await _rows(spark_ui.open_visit, ticket)
    ui = await _rows(spark_ui.shown, path) if path else None
    if path is None or ui is None:
        await _page(send, *_OVER)
    elif not await upstream.is_guarded(http, ui.port):
        await _page(send, *_UNREACHABLE)
    else:
        await _answer(send, 303, [(b"location", f"/v/{path}/".encode()), *upstream.OURS])


async def _show(http: httpx.AsyncClient, scope: Scope, path: str, send: Send) -> None:
    ui = await _rows(spark_ui.shown, path)
    if ui is None:
        await _page(send, *_OVER)
        return
    prefix = f"/v/{path}"
    target = (scope.get("raw_path") or scope["path"].encode()).partition(prefix.encode())[2]
    if scope["query_string"]:
        target = (target or b"/") + b"?" + scope["query_string"]
    begun = False
    try:
        async with (
            asyncio.timeout(LIMIT_S),
            upstream.request_ui(
                http,
                port=ui.port,
                target=target or b"/",
                method=scope["method"],
                headers=scope["headers"],
                token=jws.token(jws.key(ui.driver, ui.epoch), now=timezone.now()),
                prefix=prefix,
            ) as answer,
        ):
            begun = True
            await send(_start(answer.status, answer.headers))
            async for piece in answer.body:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, upstream.NotTheUi) as error:
        if begun:
            return  # the server closes the connection: the answer is incomplete
        unreachable = isinstance(error, httpx.TransportError | TimeoutError)
        await _page(send, *(_UNREACHABLE if unreachable else _NOT_IT))


async def _rows(read: Any, text: str) -> Any:
    """Query the database in a thread, without leaving a connection open."""

    def asked() -> Any:
        close_old_connections()
        try:
            return read(text, now=timezone.now())
        finally:
            close_old_connections()

    return await sync_to_async(asked)()


async def _preflight(send: Send) -> None:
    allowed = [
        (b"access-control-allow-origin", b"*"),
        (b"access-control-allow-methods", b"GET, HEAD"),
        (b"access-control-allow-headers", b"x-requested-with"),
    ]
    await _answer(send, 204, allowed)


async def _page(send: Send, status: int, title: str, sentence: str) -> None:
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{escape(title)}</title><h1>{escape(title)}</h1><p>{escape(sentence)}</p></html>"
    ).encode()
    headers = [(b"content-type", b"text/html; charset=utf-8"), *upstream.OURS]
    await _answer(send, status, headers, body)


async def _answer(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b""
) -> None:
    await send(_start(status, [*headers, (b"content-length", str(len(body)).encode())]))
    await send({"type": "http.response.body", "body": body})


def _start(status: int, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}
