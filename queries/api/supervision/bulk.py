"""Verbs for many queries, which a selector chooses and one operation tracks."""

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.definitions.inputs import Start, Stop
from queries.api.derived import Body, described
from queries.api.errors import invalid
from queries.api.methods import Sent, answers
from queries.domain.definitions.selection import parse_selector
from queries.domain.states import Verb
from queries.roles import OPERATE
from queries.selectors.access.insisting import insist
from queries.selectors.supervision.query_filters import selected
from queries.services.procedures.bulk_operations import MOST_QUERIES, begin_many

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
