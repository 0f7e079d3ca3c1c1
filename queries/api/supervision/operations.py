"""Operations, and the long poll that waits for the end of one.

Many scripts wait at once. A wait sleeps on the event loop and keeps no database connection;
Django gives each request a thread of its own, so none waits for another's.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar
from uuid import UUID

import redis.asyncio
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.definitions import inputs
from queries.api.errors import invalid
from queries.api.paging import PAGING, page_of_rows, whole_number
from queries.api.schema import describe, listed
from queries.api.supervision.history_bodies import OperationBody
from queries.models.history import Operation
from queries.roles import OPERATE
from queries.selectors.supervision import history
from queries.services.procedures.engine import cancel

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 60
#: How often the row is read anew although nothing was published: a lost nudge costs no more.
READ_EVERY_S = 2.0


def accepted(operation: Operation) -> Response:
    """Answer 202 with the operation and where to follow it."""
    location = reverse("api:operation", args=[operation.uuid])
    return Response(OperationBody(operation).data, status=202, headers={"Location": location})


class OperationsView(ApiView):
    """All operations."""

    @describe(
        operation_id="list_operations",
        parameters=[
            OpenApiParameter("query", OpenApiTypes.STR),
            OpenApiParameter("application", OpenApiTypes.STR),
            OpenApiParameter("open", OpenApiTypes.BOOL, description="In progress, or ended."),
            *PAGING,
        ],
        responses=listed(OperationBody),
    )
    def get(self, request: Request) -> Response:
        """List operations, newest first."""
        rows = history.operations()
        given = request.query_params
        if name := given.get("query", "").replace("\x00", ""):
            rows = rows.filter(query__name=name)
        if name := given.get("application", "").replace("\x00", ""):
            rows = rows.filter(application__name=name)
        if "open" in given:
            if given["open"] not in ("true", "false"):
                raise invalid("open", given["open"], "is neither true nor false.")
            rows = rows.filter(outcome="") if given["open"] == "true" else rows.exclude(outcome="")
        return page_of_rows(request, rows, lambda row: OperationBody(row).data)


class OperationView(ApiView):
    """One operation. `operation` below serves it, and does the waiting."""

    permissions: ClassVar[dict[str, str]] = {}

    @describe(
        operation_id="get_operation",
        parameters=[
            OpenApiParameter(
                "wait",
                {"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT_S, "default": 0},
                description="Seconds to wait for the end.",
            )
        ],
        responses=OperationBody,
    )
    def get(self, request: Request, uuid: UUID) -> Response:
        """Return an operation as soon as it has ended or `wait` is over."""
        wait = whole_number(request, "wait", 0, low=0, high=LONGEST_WAIT_S)
        row = history.operation(uuid)
        response = Response(OperationBody(row).data)
        response.wait_s = wait if not row.outcome else 0  # type: ignore[attr-defined]
        return response


class OperationCancelView(ApiView):
    """The verb cancel, for an operation with steps."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(
        operation_id="cancel_operation", request=inputs.Nothing, responses={202: OperationBody}
    )
    def post(self, request: Request, uuid: UUID) -> Response:
        """Cancel an operation before its point of no return; what it built is cleaned up."""
        self.read(inputs.Nothing, request.data or {})
        row = history.operation(uuid)
        cancel(row, actor=self.actor, now=self.now)
        return accepted(history.operation(uuid))


CANCELS = 3
CANCEL_LIMIT_S = 1.0  # for a listener to end once it is told to

_once: Any = OperationView.as_view()
_read = sync_to_async(_once)
_let_go = sync_to_async(connections.close_all)  # in the request's own thread, as the reads are


async def operation(request: HttpRequest, uuid: UUID) -> HttpResponseBase:
    """Serve an operation; while it is open, wait for its change.

    1. Read it: role, form and existence are checked as for any other address.
    2. Where the request waits, listen for "operation:UUID", then read once more, for it may
       have ended in between.
    3. Read again after each word of a change, and every two seconds in case one was lost;
       the role is asked each time.
    """
    response: Any = await _read(request, uuid=uuid)
    wait = getattr(response, "wait_s", 0)
    if not wait:
        return response  # type: ignore[no-any-return]
    deadline = time.monotonic() + wait
    async with _changes(f"operation:{uuid}") as changed:
        response = await _read(request, uuid=uuid)
        while getattr(response, "wait_s", 0) and (left := deadline - time.monotonic()) > 0:
            await _let_go()
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), min(left, READ_EVERY_S))
            changed.clear()
            response = await _read(request, uuid=uuid)
    return response  # type: ignore[no-any-return]


# The schema generator and the roles' test find the view class here, as on a plain view.
operation.cls = OperationView  # type: ignore[attr-defined]
operation.view_class = OperationView  # type: ignore[attr-defined]
operation.initkwargs = {}  # type: ignore[attr-defined]
operation.csrf_exempt = True  # type: ignore[attr-defined]  # as for each view of the framework


@asynccontextmanager
async def _changes(topic: str) -> AsyncIterator[asyncio.Event]:
    """Give an event that is set whenever the topic is published; silent where Redis is down."""
    changed = asyncio.Event()
    listener = asyncio.create_task(_listen(topic, changed))
    try:
        yield changed
    finally:
        # A cancel that meets a message on its way may be swallowed by the client below; the
        # answer must not wait for that.
        for _ in range(CANCELS):
            listener.cancel()
            done, _still = await asyncio.wait({listener}, timeout=CANCEL_LIMIT_S)
            if done:
                break


async def _listen(topic: str, changed: asyncio.Event) -> None:
    client = redis.asyncio.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=settings.REDIS_SOCKET_TIMEOUT_S,
        socket_connect_timeout=settings.REDIS_SOCKET_TIMEOUT_S,
        decode_responses=True,
    )
    try:
        async with client, client.pubsub(ignore_subscribe_messages=True) as channel:
            await channel.subscribe(settings.CHANGED_CHANNEL)
            while True:
                message = await channel.get_message(timeout=LONGEST_WAIT_S)
                if message is not None and message["data"] == topic:
                    changed.set()
    except (RedisError, OSError) as error:  # the row is read anew by itself
        logger.warning("changes of %s cannot be heard: %s", topic, error)
