"""The live pages of before: a response of Django's for each viewer, and rounds of half a second.

Each viewer has a request, middleware, a thread and a queue of its own for as long as it looks, and
each fragment is encoded for each viewer. What has changed is drawn once for all, at the next round.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.db import close_old_connections

application: Any = get_asgi_application()

import redis.asyncio as redis  # noqa: E402
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse  # noqa: E402
from django.urls import path  # noqa: E402

from installation import urls  # noqa: E402
from queries.roles import VIEW  # noqa: E402
from queries.views.console import fragments  # noqa: E402

ROUND_S = 0.5

Queue = asyncio.Queue[tuple[str, str]]
_viewers: dict[Queue, frozenset[str]] = {}
_drawn: dict[str, dict[str, str]] = {}
_changes: dict[str, set[str]] = {}
_tasks: list[asyncio.Task[None]] = []


async def live(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """Stream the topics' fragments."""
    user = await request.auser()
    if not await sync_to_async(user.has_perm)(VIEW):
        return HttpResponse(status=403)
    await sync_to_async(close_old_connections)()
    topics = frozenset(request.GET["topics"].split())
    return StreamingHttpResponse(_stream(topics), content_type="text/event-stream")


async def _stream(topics: frozenset[str]) -> AsyncIterator[bytes]:
    queue: Queue = asyncio.Queue(maxsize=2_000)
    _viewers[queue] = topics
    if not _tasks:
        _tasks.extend(asyncio.create_task(loop()) for loop in (_listen, _rounds))
    try:
        for topic in topics:
            if topic not in _drawn:
                _drawn[topic] = {}
                await _draw(topic, None)
            for found in _drawn[topic].items():
                queue.put_nowait(found)
        while True:
            event, data = await queue.get()
            said = json.dumps({"event": event, "data": data})
            yield f"data: 0\ndata: {said}\n\n".encode()
    finally:
        del _viewers[queue]


async def _listen() -> None:
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=None)
    async with client, client.pubsub(ignore_subscribe_messages=True) as ear:
        await ear.subscribe(settings.CHANGED_CHANNEL)
        while True:
            if said := await ear.get_message(timeout=5):
                for topic in _drawn:
                    if fragments.stales(topic, said["data"].decode()):
                        _changes.setdefault(topic, set()).add(said["data"].decode())


async def _rounds() -> None:
    while True:
        await asyncio.sleep(ROUND_S)
        for topic in list(_changes):
            await _draw(topic, frozenset(_changes.pop(topic)))


async def _draw(topic: str, changes: fragments.Changes) -> None:
    for event, data in await asyncio.get_running_loop().run_in_executor(
        None, _in_thread, topic, changes
    ):
        if _drawn[topic].get(event) != data:
            _drawn[topic][event] = data
            for queue, topics in _viewers.items():
                if topic in topics:
                    queue.put_nowait((event, data))


def _in_thread(topic: str, changes: fragments.Changes) -> list[tuple[str, str]]:
    close_old_connections()
    try:
        return fragments.draw(topic, changes, datetime.now(UTC))
    finally:
        close_old_connections()


urls.urlpatterns.insert(0, path("live/", live))
