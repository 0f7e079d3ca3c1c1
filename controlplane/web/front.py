"""What stands before Django: bodies are bounded, and a trusted proxy says whose request it is."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_TOO_LARGE = 413


class _Exceeded(Exception):
    """More has come than a request may have."""


def served(application: App, *, trusted: list[str]) -> App:
    """Return an application that takes a client's address from the proxies of these networks.

    Without any it is the address of the connection: everybody can write X-Forwarded-For.
    """
    if not trusted:
        return application
    return ProxyHeadersMiddleware(application, trusted_hosts=trusted)  # type: ignore[arg-type, return-value]


def bounded(application: App, *, most: int, larger: Mapping[str, int] | None = None) -> App:
    """Return an ASGI application that answers 413 to requests with a body of more bytes.

    `larger` are the addresses that take more, each with its own limit. Django itself takes a body
    whole, to memory and then to disk, before any of its code can look at its size.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        limit = (larger or {}).get(scope["path"], most)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared[:19]) > limit:
            await _refuse(send, limit)
            return
        taken = 0

        async def counted() -> MutableMapping[str, Any]:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise _Exceeded
            return message

        try:
            await application(scope, counted, send)
        except _Exceeded:
            await _refuse(send, limit)

    return serve


async def _refuse(send: Send, most: int) -> None:
    problem = {
        "type": "urn:headgate:problem:too-large",
        "title": "The body is too large",
        "status": _TOO_LARGE,
        "detail": f"A request may have {most:,} bytes.",
        "way_out": "Send less at once.",
    }
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # what is still on its way is not read
    ]
    await send({"type": "http.response.start", "status": _TOO_LARGE, "headers": headers})
    await send({"type": "http.response.body", "body": body})
