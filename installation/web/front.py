"""The layer in front of Django: body size limits, trusted proxies, vendored static files."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from whitenoise.middleware import WhiteNoiseMiddleware

from headgate_ground.tolerant import whole


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]
    """WhiteNoise with responses that are not streamed.

    WhiteNoise's own responses iterate over the file in a way that Django cannot stream under ASGI:
    Django would warn about each file, and still read it completely.
    """

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        """Return the file (or "not modified", or the requested range) as one response."""
        answer = static_file.get_response(request.method, request.META)
        content = b""
        if answer.file is not None:
            with answer.file as file:
                content = file.read()
        response = HttpResponse(content, status=int(answer.status))
        del response["content-type"]
        for name, value in answer.headers:
            response[name] = value
        return response


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_TOO_LARGE, _TOO_SLOW = 413, 408
#: A body may take this long, plus the time its bytes take at the slowest rate: a connection that
#: sends nothing, or a byte now and then, is closed (as with Apache's mod_reqtimeout).
BODY_S, SLOWEST = 30.0, 16 * 1024  # seconds; bytes per second


class _Exceeded(Exception):
    """The request has exceeded its size limit."""


def served(application: App, *, trusted: list[str]) -> App:
    """Return an application that gets a client's address from proxies in these networks.

    Without trusted networks, the connection's own address counts, because anyone can send
    X-Forwarded-For.
    """
    if not trusted:
        return application
    return ProxyHeadersMiddleware(application, trusted_hosts=trusted)  # type: ignore[arg-type, return-value]


def bounded(application: App, *, most: int, larger: Mapping[str, int] | None = None) -> App:
    """Return an ASGI application that responds with 413 to requests with larger bodies.

    It responds with 408 if a body does not arrive in time. `larger` are the paths that accept more,
    each with its own limit. Django itself reads a body completely, to memory and then to disk,
    before any of Django's code can check the size.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        limit = (larger or {}).get(scope["path"], most)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        length = whole(declared)
        if length is None or length > limit:
            await _refuse(send, limit)
            return
        received_bytes, more = 0, True
        clock = asyncio.get_running_loop().time
        began = clock()

        async def counted() -> MutableMapping[str, Any]:
            nonlocal received_bytes, more
            left = began + BODY_S + received_bytes / SLOWEST - clock() if more else None
            message = await asyncio.wait_for(receive(), left)
            received_bytes += len(message.get("body", b""))
            more = bool(message.get("more_body"))
            if received_bytes > limit:
                raise _Exceeded
            return message

        try:
            await application(scope, counted, send)
        except _Exceeded:
            await _refuse(send, limit)
        except TimeoutError:
            if not more:  # the application's own answer
                raise
            await _answer(send, _TOO_SLOW, "too-slow", "The body did not arrive in time", _SLOW)

    return serve


_SLOW = f"A body can take {BODY_S:g} s, plus one second for each {SLOWEST:,} bytes."


async def _refuse(send: Send, most: int) -> None:
    message = f"A request can have at most {most:,} bytes."
    await _answer(send, _TOO_LARGE, "too-large", "The body is too large", message)


async def _answer(send: Send, status: int, code: str, title: str, detail: str) -> None:
    way_out = "Send less data at once." if status == _TOO_LARGE else "Send it again, faster."
    body = problem(status, code, title, detail, way_out)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # the rest of the body is not read
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def problem(status: int, code: str, title: str, detail: str, way_out: str) -> bytes:
    """Return the body of a response given before Django, as in RFC 9457."""
    body = {"type": f"urn:headgate:problem:{code}", "title": title, "status": status}
    return json.dumps(body | {"detail": detail, "way_out": way_out}).encode()
