"""Preflights and X-rays over REST: tried before it runs, and state opened up."""

from typing import Any
from uuid import UUID

import rules
from rest_framework import serializers

from queries.api.base import ApiView
from queries.api.definitions.inputs import QueryReplace
from queries.api.derived import Body, described
from queries.api.methods import Sent, accepts, answers
from queries.api.schema import ObjectField, QuerySpecField
from queries.domain.errors import Forbidden, Missing
from queries.domain.states import Verb
from queries.launchers.configured import launcher
from queries.models.history import Operation
from queries.roles import DEFINE
from queries.selectors.definitions import definitions
from queries.selectors.supervision import history
from queries.services.probes import xray
from queries.services.probes.preflight import begin_preflight


@described
class Preflight(QueryReplace):
    """A definition to be tried, as a PUT has it; without one the newest revision is.

    spec: None: the newest revision.
    """

    spec = QuerySpecField(required=False, default=None)


@described
class XrayForm(serializers.Serializer[Any]):
    """Which state to read, and how much of it to show.

    side: Of a stream-stream join.
    variable: Of transformWithState.
    contains: Only groups whose key, written as JSON, holds this text.
    snapshot: A kept snapshot; else as it is now.
    """

    operator = serializers.IntegerField(default=0, min_value=0, max_value=1000)
    store = serializers.CharField(default="default", max_length=100)
    side = serializers.ChoiceField(["", "left", "right"], default="")
    variable = serializers.CharField(default="", allow_blank=True, max_length=200)
    contains = serializers.CharField(default="", allow_blank=True, max_length=200)
    rows = serializers.IntegerField(default=xray.ROWS, min_value=1, max_value=xray.MOST_ROWS)
    snapshot = serializers.IntegerField(default=None, allow_null=True, min_value=1)


@described
class XrayBody(Body):
    """What an X-ray has seen: numbers of all groups, and a few rows.

    rows: Groups, of all that the filter lets through.
    bytes: Of their keys and values as JSON.
    largest: Keys with most rows or bytes.
    frequent: Each column of the key: values (about), most frequent.
    """

    operators = serializers.ListField(child=ObjectField())
    operator = serializers.IntegerField()
    rows = serializers.IntegerField()
    bytes = serializers.IntegerField()
    partitions = serializers.ListField(child=ObjectField())
    largest = serializers.ListField(child=ObjectField())
    frequent = serializers.ListField(child=ObjectField())
    sample = serializers.ListField(child=ObjectField())


class QueryPreflightView(ApiView):
    """The verb preflight."""

    @accepts("preflight_query", form=Preflight, request={"application/json": Preflight})
    def post(self, sent: Sent, name: str) -> Operation:
        """Try a definition against a copy of the checkpoint, before it replaces what runs.

        DONE where it passes, FAILED where it does not; `result.preflight` says the rest. A
        definition of one's own takes an author, the newest revision an operator.
        """
        spec = sent.get("spec")
        if spec is not None and not rules.has_perm(DEFINE, self.request.user):
            raise Forbidden(
                "A definition of your own can be tried by authors only.",
                way_out="Send no spec to try the newest revision.",
            )
        return begin_preflight(query=definitions.query(name), spec=spec, **self.by)


class QueryXrayView(ApiView):
    """The verb x-ray."""

    @accepts("x_ray_query", role=DEFINE, form=XrayForm)
    def post(self, sent: Sent, name: str) -> Operation:
        """Read the rows of a state operator from a copy; follow the operation to its end."""
        return xray.begin_xray(query=definitions.query(name), **sent, **self.by)


class QueryXrayRowsView(ApiView):
    """What an X-ray has seen."""

    @answers("get_x_ray", XrayBody, role=DEFINE)
    def get(self, name: str, uuid: UUID) -> Any:
        """Return the rows of a finished X-ray, for an hour after its end."""
        operation = history.operation(uuid)
        if operation.query != definitions.query(name) or operation.verb != Verb.XRAY:
            raise Missing(f"{name} has no X-ray {uuid}.")
        seen = xray.rows_of(operation, launcher=launcher(), now=self.now)
        if seen is None:
            raise Missing(
                "Its rows are not there: it has not ended, failed, or its hour is over.",
                way_out="Ask for a new one.",
            )
        return seen
