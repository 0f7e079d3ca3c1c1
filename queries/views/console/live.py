"""A page's event stream: server-sent events, or the same fragments as JSON."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence

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
from queries.views.console.hub import BACKLOG, Hub, Message, Queue, Viewer, hub

COMMENT_EVERY_S = 15
#: Seconds after which a stream ends and the browser reconnects, so that a revoked role takes
#: effect.
LIFE_S = 300
RETRY_MS = (1000, 4000)
TOPICS_AT_MOST = 20
#: Maximum streams per user in one web process; a page without one polls instead. A browser has one
#: stream for all its tabs (stream.js), or one per tab if it does not support shared workers.
STREAMS_AT_MOST = 25
TABS_AT_MOST = 40  # in one stream


async def live(request: HttpRequest) -> HttpResponseBase:
    """Stream the topics' fragments; return JSON once if requested."""
    user = await request.auser()
    if not await sync_to_async(user.has_perm)(VIEW):
        return HttpResponse("Sign in with a role that has view access.", status=403)
    shared = "shared" in request.GET
    asked = request.GET.getlist("topics")[: None if shared else 1] or [""]
    if len(asked) > TABS_AT_MOST:
        return HttpResponse(
            f"{len(asked)} tabs share this stream; the limit is {TABS_AT_MOST}.", status=400
        )
    tabs = [frozenset(each.replace(",", " ").split()) for each in asked]
    for topics in tabs:
        unknown = sorted(topic for topic in topics if not fragments.known(topic))
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
    # A stream lasts for minutes and does not need its own database connection: the hub draws for
    # all.
    await sync_to_async(close_old_connections)()
    return StreamingHttpResponse(
        _stream(hub(), _viewers(tabs, shared, user.pk, request.session.session_key), cursors),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _viewers(
    tabs: Sequence[frozenset[str]], shared: bool, person: int | None, session: str | None
) -> list[Viewer]:
    """Return a viewer for each tab, all sharing one queue."""
    queue: Queue = asyncio.Queue(maxsize=BACKLOG * len(tabs))
    return [
        Viewer(topics, person, session or "", queue, tab if shared else None)
        for tab, topics in enumerate(tabs)
    ]


async def _stream(
    live_hub: Hub, viewers: Sequence[Viewer], cursors: Sequence[str]
) -> AsyncIterator[bytes]:
    yield f"retry: {random.randint(*RETRY_MS)}\n\n".encode()
    queue = viewers[0].queue
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + LIFE_S * random.uniform(0.8, 1.2)
    try:
        for viewer, cursor in zip(viewers, cursors, strict=False):
            await live_hub.join(viewer, cursor)
        while not live_hub.closing and loop.time() < ends_at:
            try:
                message = await asyncio.wait_for(queue.get(), timeout=COMMENT_EVERY_S)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if message is None:
                return
            yield encode(message, live_hub.name)
    finally:
        for viewer in viewers:
            live_hub.leave(viewer)


def encode(message: Message, name: str) -> bytes:
    """Return a message as an event of the stream; in a shared stream, with its tab's number."""
    if message.tab is not None:
        said = {"tab": message.tab, "event": message.event, "data": message.data}
        return f"id: {name}.{message.number}\ndata: {json.dumps(said)}\n\n".encode()
    data = "".join(f"data: {line}\n" for line in message.data.splitlines())
    number = f"id: {name}.{message.number}\n"
    return f"event: {message.event}\n{number}{data}\n".encode()


urlpatterns = [path("live/", live, name="live")]
