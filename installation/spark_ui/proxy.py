"""Serve drivers' Spark UIs on a separate origin: few headers, limited sizes, checked responses.

The UI's web server runs authors' code, so it may respond with anything.

/open/TICKET         redeems a ticket from the console for a secret path
    /v/PATH/…            the Spark UI of one driver, GET and HEAD
    /healthz             whether this server responds

A UI is requested on this host, at the port in the driver's row, and each request is signed for that
driver. The destination of a request never depends on anything that a driver writes or reports.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from controlplane import jws
from installation.web.front import App, Receive, Scope, Send
from queries.services import spark_ui

LIMIT_S = 30.0  # between two chunks of an answer
MOST_BYTES = 256 * 1024 * 1024  # per answer; a long run's event log has some ten MB
_LOOPBACK = "127.0.0.1"
_SCRIPT = re.compile(rb"/static/[\w./-]+\.js(\?|$)")
#: Request headers passed to a Spark UI; cookies and the user's own Authorization are not.
_PASSED_REQUEST_HEADERS = (b"accept", b"accept-language")
#: Response headers passed to a browser. Spark's own policy, which blocks foreign scripts from its
#: pages, applies in addition to ours.
_ANSWERED = (
    *(b"content-type", b"content-disposition", b"last-modified"),
    b"content-security-policy",
)
#: Scripts of the page run in an opaque origin: no cookies, no storage, no other page of ours. They
#: can load data from this server only, and send data to it only.
POLICY = (
    "sandbox allow-scripts allow-forms allow-downloads; default-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'; object-src 'none'; worker-src 'none'"
)
#: Spark's scripts keep expanded sections in localStorage, and fail if a page has none.
_STORAGE = b"""(function () {
  try { window.localStorage; } catch (denied) {
    var held = {};
    Object.defineProperty(window, "localStorage", { value: {
      getItem: function (name) { return name in held ? held[name] : null; },
      setItem: function (name, value) { held[name] = String(value); },
      removeItem: function (name) { delete held[name]; }
    } });
  }
})();
"""
OURS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    # A page with an opaque origin is foreign to its own server; anyone who has the path may read
    # it.
    (b"access-control-allow-origin", b"*"),
)


class NotTheUi(Exception):
    """The service at the driver's port is not the driver's Spark UI, protected by our key."""


@dataclass(frozen=True, slots=True)
class UiAnswer:
    """The response of a Spark UI."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: AsyncIterator[bytes]


def client() -> httpx.AsyncClient:
    """Return the client for Spark UIs: without environment proxies, redirects or cookies."""
    return httpx.AsyncClient(
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(LIMIT_S, connect=2.0, pool=LIMIT_S),
        limits=httpx.Limits(max_connections=64, max_keepalive_connections=0),
    )


@asynccontextmanager
async def request_ui(
    http: httpx.AsyncClient,
    *,
    port: int,
    target: bytes,
    method: str,
    headers: list[tuple[bytes, bytes]],
    token: str,
    prefix: str,
) -> AsyncIterator[UiAnswer]:
    """Request a target (path and query) from the Spark UI at a port, under our `prefix`.

    Raises `httpx.HTTPError` if nothing responds, `NotTheUi` if it redirects elsewhere.
    """
    url = httpx.URL(scheme="http", host=_LOOPBACK, port=port, raw_path=target)
    request_headers = [
        (name, value) for name, value in headers if name.lower() in _PASSED_REQUEST_HEADERS
    ]
    request_headers += [
        (b"accept-encoding", b"identity"),
        (b"authorization", f"Bearer {token}".encode()),
        (b"x-forwarded-context", prefix.encode()),  # prefix of Spark's links (UIUtils.uiRoot)
    ]
    request = http.build_request(method, url, headers=request_headers)
    request.headers.pop("cookie", None)  # from an earlier answer: httpx keeps them
    answer = await http.send(request, stream=True)
    try:
        if not httpx.codes.OK <= answer.status_code < 600:
            raise NotTheUi(f"It responds with status {answer.status_code}.")
        passed_headers = [pair for pair in answer.headers.raw if pair[0].lower() in _ANSWERED]
        if "location" in answer.headers:
            target_url = _placed(answer.headers["location"], str(url), port, prefix)
            passed_headers.append((b"location", target_url.encode()))
        script = answer.status_code == httpx.codes.OK and _SCRIPT.match(target)
        before = _STORAGE if script and method == "GET" else b""
        yield UiAnswer(answer.status_code, [*passed_headers, *OURS], _bounded(answer, before))
    finally:
        await answer.aclose()


async def is_guarded(http: httpx.AsyncClient, port: int) -> bool:
    """Return whether the server at a port rejects requests without a key, like Spark's filter."""
    try:
        async with http.stream("GET", f"http://{_LOOPBACK}:{port}/version") as answer:
            return answer.status_code == httpx.codes.FORBIDDEN
    except httpx.HTTPError:
        return False


def _placed(location: str, request_url: str, port: int, prefix: str) -> str:
    """Return a redirect's target on this server; raise `NotTheUi` if it is on another server."""
    try:
        parts = urlsplit(urljoin(request_url, location))
    except ValueError as error:
        raise NotTheUi("It redirects to an invalid URL.") from error
    if (parts.scheme, parts.netloc) != ("http", f"{_LOOPBACK}:{port}"):
        raise NotTheUi("It redirects to another server.")
    path = parts.path if parts.path.startswith(prefix + "/") else prefix + (parts.path or "/")
    return path + (f"?{parts.query}" if parts.query else "")


async def _bounded(answer: httpx.Response, before: bytes) -> AsyncIterator[bytes]:
    if before:
        yield before
    size = 0
    async for piece in answer.aiter_raw():
        size += len(piece)
        if size > MOST_BYTES:
            raise NotTheUi(f"It responds with more than {MOST_BYTES:,} bytes.")
        yield piece


#: Time limit for a complete answer, in seconds.
PROXY_LIMIT_S = 120.0
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
    http = client()

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
    elif not await is_guarded(http, ui.port):
        await _page(send, *_UNREACHABLE)
    else:
        await _answer(send, 303, [(b"location", f"/v/{path}/".encode()), *OURS])


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
            asyncio.timeout(PROXY_LIMIT_S),
            request_ui(
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
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, NotTheUi) as error:
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
    headers = [(b"content-type", b"text/html; charset=utf-8"), *OURS]
    await _answer(send, status, headers, body)


async def _answer(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b""
) -> None:
    await send(_start(status, [*headers, (b"content-length", str(len(body)).encode())]))
    await send({"type": "http.response.body", "body": body})


def _start(status: int, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}
