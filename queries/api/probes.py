"""Preflights and X-rays over REST: tried before it runs, and state opened up."""

from typing import Any, ClassVar
from uuid import UUID

import rules
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.definitions.inputs import QueryReplace
from queries.api.schema import ObjectField, QuerySpecField, describe
from queries.api.supervision.history_bodies import OperationBody
from queries.api.supervision.operations import accepted
from queries.api.supervision.query_bodies import Body
from queries.domain.errors import Forbidden, Missing
from queries.domain.states import Verb
from queries.launchers.configured import launcher
from queries.roles import DEFINE, OPERATE
from queries.selectors.definitions import definitions
from queries.selectors.supervision import history
from queries.services.probes import xray
from queries.services.probes.preflight import begin_preflight


class Preflight(QueryReplace):
    """A definition to try, as in a PUT; without one, the newest revision."""

    spec = QuerySpecField(required=False, default=None, help_text="None: the newest revision.")


class XrayForm(serializers.Serializer[Any]):
    """Which state to read, and how much of it to show."""

    operator = serializers.IntegerField(default=0, min_value=0, max_value=1000)
    store = serializers.CharField(default="default", max_length=100)
    side = serializers.ChoiceField(
        ["", "left", "right"], default="", help_text="Of a stream-stream join."
    )
    variable = serializers.CharField(
        default="", allow_blank=True, max_length=200, help_text="Of transformWithState."
    )
    contains = serializers.CharField(
        default="",
        allow_blank=True,
        max_length=200,
        help_text="Only groups whose key, written as JSON, contains this text.",
    )
    rows = serializers.IntegerField(default=xray.ROWS, min_value=1, max_value=xray.MOST_ROWS)
    snapshot = serializers.IntegerField(
        default=None,
        allow_null=True,
        min_value=1,
        help_text="A snapshot; otherwise the current state.",
    )


class XrayBody(Body):
    """The result of an X-ray: figures for all groups, and a few rows."""

    operators = serializers.ListField(child=ObjectField())
    operator = serializers.IntegerField()
    rows = serializers.IntegerField(help_text="Number of groups that pass the filter.")
    bytes = serializers.IntegerField(help_text="Of their keys and values as JSON.")
    partitions = serializers.ListField(child=ObjectField())
    largest = serializers.ListField(
        child=ObjectField(), help_text="Keys with the most rows or bytes."
    )
    frequent = serializers.ListField(
        child=ObjectField(),
        help_text="For each column of the key: approximate number of values, "
        "and the most frequent.",
    )
    sample = serializers.ListField(child=ObjectField())


class QueryPreflightView(ApiView):
    """The verb preflight."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(
        operation_id="preflight_query",
        request={"application/json": Preflight},
        responses={202: OperationBody},
    )
    def post(self, request: Request, name: str) -> Response:
        """Try a definition against a copy of the checkpoint, before it replaces what runs.

        DONE if it passes, FAILED if it does not; `result.preflight` has the details. Trying
        another definition takes an author, the newest revision an operator.
        """
        spec = self.read(Preflight, request.data or {}).get("spec")
        if spec is not None and not rules.has_perm(DEFINE, request.user):
            raise Forbidden(
                "Only authors can run a preflight of a definition of their own.",
                way_out="Send no spec to run a preflight of the newest revision.",
            )
        operation = begin_preflight(
            query=definitions.query(name), spec=spec, actor=self.actor, now=self.now
        )
        return accepted(operation)


class QueryXrayView(ApiView):
    """The verb x-ray."""

    permissions: ClassVar[dict[str, str]] = {"POST": DEFINE}

    @describe(operation_id="x_ray_query", request=XrayForm, responses={202: OperationBody})
    def post(self, request: Request, name: str) -> Response:
        """Read the rows of a state operator from a copy; follow the operation to its end."""
        asked = self.read(XrayForm, request.data or {})
        operation = xray.begin_xray(
            query=definitions.query(name), actor=self.actor, now=self.now, **asked
        )
        return accepted(operation)


class QueryXrayRowsView(ApiView):
    """What an X-ray has seen."""

    permissions: ClassVar[dict[str, str]] = {"GET": DEFINE}

    @describe(operation_id="get_x_ray", responses=XrayBody)
    def get(self, request: Request, name: str, uuid: UUID) -> Response:
        """Return the rows of a finished X-ray, for one hour after its end."""
        operation = history.operation(uuid)
        if operation.query != definitions.query(name) or operation.verb != Verb.XRAY:
            raise Missing(f"{name} has no X-ray {uuid}.")
        seen = xray.rows_of(operation, launcher=launcher(), now=self.now)
        if seen is None:
            raise Missing(
                "Its rows are not available: it has not ended, has failed, or ended more than an "
                "hour ago.",
                way_out="Request a new one.",
            )
        return Response(XrayBody(seen).data)
