"""A page's event stream: server-sent events, or the same fragments as JSON.

Django answers the request as any other: it checks the host, the session and the right to view, and
sets the headers. The stream itself is served below Django (`below_django`), so that no request, no
thread and no database connection exists while it is open.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path, reverse

from queries.roles import VIEW
from queries.views.console import fragments
from queries.views.console.fragments import Viewer
from queries.views.console.hub import hub

#: Seconds after which a stream ends and the browser reconnects. Rights are checked meanwhile.
LIFE_S = 1800
RETRY_MS = (1000, 4000)
TOPICS_AT_MOST = 20
#: Maximum streams per user in one web process; a page without one polls instead. A browser has one
#: stream for all its tabs (stream.js), or one per tab if it does not support shared workers.
STREAMS_AT_MOST = 25
TABS_AT_MOST = 40  # in one stream

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
#: What a stream shows: for each tab, its topics and the cursor of the last fragment it has.
RequestedPages = list[tuple[frozenset[str], str]]

#: The key of an ASGI scope under which `live` leaves the streams that it has admitted.
_ADMITTED = "headgate.live"


async def live(request: HttpRequest) -> HttpResponse:
    """Admit a stream of the topics' fragments; return JSON once if requested."""
    user = await request.auser()
    if not await sync_to_async(user.has_perm)(VIEW):
        return HttpResponse("Sign in with a role that has view access.", status=403)
    topic_lists = request.GET.getlist("topics") or [""]
    if len(topic_lists) > TABS_AT_MOST:
        return HttpResponse(
            f"{len(topic_lists)} tabs share this stream; the limit is {TABS_AT_MOST}.", status=400
        )
    tabs = [frozenset(topic_list.replace(",", " ").split()) for topic_list in topic_lists]
    for topics in tabs:
        unknown = sorted(topic for topic in topics if not fragments.topic_exists(topic))
        if not topics or unknown or len(topics) > TOPICS_AT_MOST:
            return HttpResponse(
                f"topics: {', '.join(unknown) or len(topics)} cannot be streamed. "
                f"Name 1 to {TOPICS_AT_MOST} of {', '.join(sorted(fragments.TOPICS))}.",
                status=400,
            )
    last = request.headers.get("Last-Event-ID")
    cursors = [last] * len(tabs) if last else request.GET.getlist("cursor")
    cursors += [""] * (len(tabs) - len(cursors))
    if "application/json" in request.headers.get("Accept", ""):
        return JsonResponse(await hub().snapshot(tabs[0], cursors[0]))
    if hub().streams_of(user.pk) >= STREAMS_AT_MOST:
        return HttpResponse(
            f"You already have {STREAMS_AT_MOST} live pages open; this one refreshes periodically.",
            status=429,
            headers={"Retry-After": str(LIFE_S)},
        )
    packed = "gzip" in request.headers.get("Accept-Encoding", "")
    viewer = Viewer(user.pk, request.session.session_key or "", packed)
    admitted = getattr(request, "scope", {}).get(_ADMITTED)
    if admitted is not None:
        hub().viewers.add(viewer)  # counted from here on
        admitted.append((viewer, [*zip(tabs, cursors, strict=False)]))
    encoding = {"Content-Encoding": "gzip"} if packed else {}
    return HttpResponse(
        content_type="text/event-stream",
        headers={
            **{"Cache-Control": "no-store", "Vary": "Accept-Encoding", "X-Accel-Buffering": "no"},
            **encoding,
        },
    )


def below_django(django: Any) -> App:
    """Return an ASGI application that opens streams with Django and serves them without it."""
    address = reverse("live")

    async def serve(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != address:
            await django(scope, receive, send)
            return
        admitted: list[tuple[Viewer, RequestedPages]] = []
        begun = False

        async def answer(message: Message) -> None:
            """Send Django's answer, without the body and its length if a stream follows."""
            nonlocal begun
            if admitted and message["type"] == "http.response.start" and message["status"] == 200:
                begun = True
                headers = [
                    pair for pair in message["headers"] if pair[0].lower() != b"content-length"
                ]
                await send({**message, "headers": headers})
            elif not begun:
                await send(message)

        try:
            await django({**scope, _ADMITTED: admitted}, receive, answer)
            if begun:
                await _stream(*admitted[0], receive, send)
        finally:
            for viewer, _ in admitted:
                hub().leave(viewer)

    return serve


async def _stream(viewer: Viewer, pages: RequestedPages, receive: Receive, send: Send) -> None:
    """Send fragments until the browser leaves, or until the hub ends the stream."""
    life = LIFE_S * random.uniform(0.8, 1.2)
    ends_at = asyncio.get_running_loop().time() + life
    viewer.open(send, ends_at=ends_at, retry_ms=random.randint(*RETRY_MS))
    await hub().join(viewer, pages)
    while (await receive())["type"] != "http.disconnect":
        pass


urlpatterns = [path("live/", live, name="live")]
