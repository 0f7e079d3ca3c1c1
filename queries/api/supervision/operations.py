"""Operations, the long poll that waits for an end, and verbs for many queries at once.

Many scripts wait at the same time. A waiting request sleeps on the event loop and does not keep a
database connection; Django gives each request its own thread, so no request waits for another.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import redis.asyncio
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from redis.exceptions import RedisError
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.bodies import Body, OperationBody, OperationDetailBody, described
from queries.api.definitions.changes import Start, Stop
from queries.api.errors import invalid
from queries.api.methods import Sent, accepts, answers, flag, lists, whole, whole_number, word
from queries.domain.definitions.labels import parse_selector
from queries.domain.states import Verb
from queries.models.history import Operation
from queries.roles import OPERATE
from queries.selectors.access import insist
from queries.selectors.supervision import history
from queries.selectors.supervision.query_filters import selected
from queries.services.procedures.bulk_operations import MOST_QUERIES, begin_many
from queries.services.procedures.engine import cancel

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 60
_STARTS = (Verb.START, Verb.RESTART)
#: Seconds between reads of the row without a notification: the longest delay after a lost nudge.
READ_EVERY_S = 2.0


class OperationsView(ApiView):
    """All operations."""

    @lists(
        "list_operations",
        OperationBody,
        parameters=[word("query"), word("application"), flag("open", "In progress, or ended.")],
    )
    def get(self) -> QuerySet[Operation]:
        """List operations, newest first."""
        rows = history.operations()
        if name := self.query_param("query"):
            rows = rows.filter(query__name=name)
        if name := self.query_param("application"):
            rows = rows.filter(application__name=name)
        if (still := self.boolean_param("open")) is not None:
            rows = rows.filter(outcome="") if still else rows.exclude(outcome="")
        return rows


class OperationView(ApiView):
    """One operation. The `operation` function below serves it, and does the waiting."""

    @answers(
        "get_operation",
        OperationDetailBody,
        parameters=[
            whole("wait", 0, low=0, high=LONGEST_WAIT_S, about="Seconds to wait for it to end."),
            flag("completed", "Wait until the query's work has ended too (`completion`)."),
        ],
    )
    def get(self, uuid: UUID) -> Response:
        """Return an operation once it has ended or `wait` has elapsed."""
        wait = whole_number(self.request, "wait", 0, low=0, high=LONGEST_WAIT_S)
        row = history.operation(uuid)
        response = Response(OperationDetailBody(row).data)
        going_on = not row.outcome
        if self.boolean_param("completed") and row.query is not None and row.verb in _STARTS:
            going_on = response.data["completion"] is None
        response.wait_s = wait if going_on else 0  # type: ignore[attr-defined]
        return response


class OperationCancelView(ApiView):
    """The `cancel` verb for an operation with steps."""

    @accepts("cancel_operation")
    def post(self, uuid: UUID) -> Operation:
        """Cancel an operation before its point of no return; its partial results are removed."""
        cancel(history.operation(uuid), **self.by)
        return history.operation(uuid)


CANCELS = 3
CANCEL_LIMIT_S = 1.0  # seconds for a listener to end after being cancelled

_once: Any = OperationView.as_view()
_read = sync_to_async(_once)
_let_go = sync_to_async(connections.close_all)  # in the request's own thread, like the reads


async def operation(request: HttpRequest, uuid: UUID) -> HttpResponseBase:
    """Serve an operation; while it is open, wait for its change.

    1. Read it: role, form and existence are checked as for any other endpoint.
    2. If the request waits, listen for "operation:UUID", then read again, because it may have ended
       in between.
    3. Read again after each notification of a change, and every two seconds in case one was lost;
       the role is checked each time.
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


# The schema generator and the role test look for the view class here, as on a plain view.
operation.cls = OperationView  # type: ignore[attr-defined]
operation.view_class = OperationView  # type: ignore[attr-defined]
operation.initkwargs = {}  # type: ignore[attr-defined]
operation.csrf_exempt = True  # type: ignore[attr-defined]  # as for each view of the framework


@asynccontextmanager
async def _changes(topic: str) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set whenever the topic is published; never set if Redis is down."""
    changed = asyncio.Event()
    listener = asyncio.create_task(_listen(topic, changed))
    try:
        yield changed
    finally:
        # The client library may swallow a cancellation that coincides with an arriving message; the
        # response must not wait for that.
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
    except (RedisError, OSError) as error:  # the row is read again anyway
        logger.warning("cannot subscribe to changes of %s: %s", topic, error)


Form = serializers.Serializer[Any]


@described
class ManyForm(Form):
    """The queries to act on.

    selector: name=value or name!=value, separated by commas; several values separated by |.
    dry_run: Return the selected queries, and do nothing.
    """

    selector = serializers.CharField(max_length=2000)
    dry_run = serializers.BooleanField(default=False)


@described
class StopManyForm(ManyForm, Stop):
    """The queries to stop, and how to stop them.

    mode: After the batch in flight (graceful), or immediately (now).
    """


@described
class ManyBody(Body):
    """The selected queries, and the operation on them.

    operation: Its result has each query's outcome; null if none is selected, or in a dry run.
    """

    queries = serializers.ListField(child=serializers.CharField())
    operation = serializers.UUIDField(allow_null=True)


@described
class StartManyForm(ManyForm, Start):
    """The queries to start, and how to start them.

    accept_state_change: Include queries whose state changes meaning.
    """


class _ManyView(ApiView):
    """A verb on selected queries."""

    verb: Verb

    def _do(self, sent: Sent) -> Response:
        """Act on each selected query, or return the selected queries."""
        text = sent["selector"]
        rows = list(selected(parse_selector(text))[: MOST_QUERIES + 1])
        if len(rows) > MOST_QUERIES:
            way_out = "Narrow the selection: add a condition, such as application=NAME."
            raise invalid("selector", text, f"selects more than {MOST_QUERIES} queries.", way_out)
        insist(
            self.request.user, list({row.application_id: row.application for row in rows}.values())
        )
        uuid = None
        if rows and not sent["dry_run"]:
            how: dict[str, Any] = {
                name: sent[name] for name in ("mode", "accept_state_change") if name in sent
            }
            about = {"selector": text, **how}
            uuid = begin_many(self.verb, rows, arguments=about, **self.by).uuid
        body = ManyBody({"queries": [row.name for row in rows], "operation": uuid})
        if uuid is None:
            return Response(body.data)
        location = reverse("api:operation", args=[uuid])
        return Response(body.data, status=202, headers={"Location": location})


_ANSWERS: dict[str, Any] = {"responses": {200: ManyBody, 202: ManyBody}}


class StartManyView(_ManyView):
    """The `start` verb for many queries."""

    verb = Verb.START_MANY

    @answers("start_queries", ManyBody, role=OPERATE, form=StartManyForm, **_ANSWERS)
    def post(self, sent: Sent) -> Response:
        """Start each selected query; one operation has the outcome of each."""
        return self._do(sent)


class StopManyView(_ManyView):
    """The `stop` verb for many queries."""

    verb = Verb.STOP_MANY

    @answers("stop_queries", ManyBody, role=OPERATE, form=StopManyForm, **_ANSWERS)
    def post(self, sent: Sent) -> Response:
        """Stop each selected query; one operation has the outcome of each."""
        return self._do(sent)


class RestartManyView(_ManyView):
    """The `restart` verb for many queries."""

    verb = Verb.RESTART_MANY

    @answers("restart_queries", ManyBody, role=OPERATE, form=StartManyForm, **_ANSWERS)
    def post(self, sent: Sent) -> Response:
        """Restart each selected query; one operation has the outcome of each."""
        return self._do(sent)
