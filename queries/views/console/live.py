"""The event stream of a page: server-sent events, or the same fragments as JSON."""

import asyncio
import random
from collections.abc import AsyncIterator

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    StreamingHttpResponse,
)
from django.urls import path

from queries.roles import VIEW
from queries.views.console import fragments
from queries.views.console.hub import Hub, Message, hub

COMMENT_EVERY_S = 15
#: A stream ends after this long and the browser comes back: so a role taken away is noticed.
LIFE_S = 300
RETRY_MS = (1000, 4000)
TOPICS_AT_MOST = 20
#: Streams of one person in one web process; a page without one asks now and then instead.
STREAMS_AT_MOST = 10


async def live(request: HttpRequest) -> HttpResponseBase:
    """Stream the topics' fragments; answer once with JSON where that is asked for."""
    user = await request.auser()
    if not await sync_to_async(user.has_perm)(VIEW):
        return HttpResponse("Sign in with a role that can view.", status=403)
    topics = frozenset(request.GET.get("topics", "").replace(",", " ").split())
    unknown = sorted(topic for topic in topics if not fragments.known(topic))
    if not topics or unknown or len(topics) > TOPICS_AT_MOST:
        return HttpResponse(
            f"topics: {', '.join(unknown) or len(topics)} cannot be streamed. "
            f"Name 1 to {TOPICS_AT_MOST} of {', '.join(sorted(fragments.TOPICS))}.",
            status=400,
        )
    cursor = request.headers.get("Last-Event-ID") or request.GET.get("cursor", "")
    if "application/json" in request.headers.get("Accept", ""):
        return JsonResponse(await hub().snapshot(topics, cursor))
    if hub().streams_of(user.pk) >= STREAMS_AT_MOST:
        return HttpResponse(
            f"You have {STREAMS_AT_MOST} live pages open already; this one asks now and then.",
            status=429,
            headers={"Retry-After": str(LIFE_S)},
        )
    # A stream lives for minutes and needs no database of its own: the hub draws for all.
    await sync_to_async(close_old_connections)()
    return StreamingHttpResponse(
        _stream(hub(), topics, cursor, user.pk, request.session.session_key or ""),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _stream(
    live_hub: Hub, topics: frozenset[str], cursor: str, person: int | None, session: str
) -> AsyncIterator[bytes]:
    yield f"retry: {random.randint(*RETRY_MS)}\n\n".encode()
    viewer = await live_hub.join(topics, cursor, person, session)
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + LIFE_S * random.uniform(0.8, 1.2)
    try:
        while not live_hub.closing and loop.time() < ends_at:
            try:
                message = await asyncio.wait_for(viewer.queue.get(), timeout=COMMENT_EVERY_S)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if message is None:
                return
            yield encode(message, live_hub.name)
    finally:
        live_hub.leave(viewer)


def encode(message: Message, name: str) -> bytes:
    """Return a message as an event of the stream."""
    data = "".join(f"data: {line}\n" for line in message.data.splitlines())
    number = f"id: {name}.{message.number}\n"
    return f"event: {message.event}\n{number}{data}\n".encode()


urlpatterns = [path("live/", live, name="live")]
