"""Async progress tracking over REST: what a crash now would replay, and the safe way off."""

from typing import ClassVar

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.definitions import inputs
from queries.api.schema import describe
from queries.api.supervision.history_bodies import OperationBody
from queries.api.supervision.operations import accepted
from queries.api.supervision.query_bodies import Body
from queries.roles import DEFINE
from queries.selectors.definitions import definitions
from queries.selectors.triggers.replay_exposure import exposure
from queries.services.triggers.async_off import turn_off


class ExposureBody(Body):
    """What a crash now would make a query replay; all null if every batch is saved."""

    interval_ms = serializers.IntegerField(help_text="Offsets are saved at most this often.")
    kept = serializers.IntegerField(
        allow_null=True, help_text="Batch that a start would continue after; null: the beginning."
    )
    kept_at = serializers.DateTimeField(allow_null=True)
    missing = serializers.IntegerField(
        allow_null=True, help_text="Batch whose offsets Spark would miss with tracking off."
    )
    newest = serializers.IntegerField(allow_null=True, help_text="Newest executed batch.")
    running = serializers.IntegerField(allow_null=True, help_text="Batch running now.")
    batches = serializers.IntegerField(help_text="Executed, and to be replayed.")
    rows = serializers.IntegerField(allow_null=True)
    rows_from = serializers.ChoiceField(
        ["offsets", "progress", ""], help_text="How rows were counted."
    )
    seconds = serializers.FloatField(
        allow_null=True, help_text="Seconds of work since the last saved batch."
    )
    unreadable = serializers.CharField(help_text="Why the checkpoint could not be read.")


class QueryExposureBody(Body):
    """Whether a query has async progress tracking, and what that exposes it to."""

    async_progress = serializers.BooleanField()
    exposure = ExposureBody(allow_null=True)


class QueryExposureView(ApiView):
    """What a crash now would replay."""

    @describe(operation_id="get_query_exposure", responses=QueryExposureBody)
    def get(self, request: Request, name: str) -> Response:
        """Return what a crash now would replay, for a query with async progress tracking."""
        found = exposure(definitions.query(name), now=self.now)
        body = {"async_progress": found is not None, "exposure": found}
        return Response(QueryExposureBody(body).data)


class QueryAsyncOffView(ApiView):
    """The safe way to switch async progress tracking off."""

    permissions: ClassVar[dict[str, str]] = {"POST": DEFINE}

    @describe(
        operation_id="switch_async_progress_off",
        request=inputs.Nothing,
        responses={202: OperationBody},
    )
    def post(self, request: Request, name: str) -> Response:
        """Switch async progress tracking off in steps; recover a query that failed on its gap."""
        self.read(inputs.Nothing, request.data or {})
        return accepted(turn_off(query=definitions.query(name), actor=self.actor, now=self.now))
