"""Lag, losses and going on after a loss, over REST."""

from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.definitions import inputs
from queries.api.paging import PAGING, page_of_rows
from queries.api.schema import describe, listed
from queries.api.supervision.history_bodies import OperationBody
from queries.api.supervision.operations import accepted
from queries.api.supervision.query_bodies import Body
from queries.domain.states import LossKind
from queries.roles import OPERATE
from queries.selectors.definitions import definitions
from queries.selectors.kafka import loss_ledger
from queries.selectors.kafka.lag import lag_of
from queries.services.kafka.go_on_after_loss import go_on


class GoOn(inputs.Form):
    """How many offsets are accepted as lost: the count of lost offsets that the lag returns."""

    offsets = serializers.IntegerField(min_value=1, help_text="Sum over all gaps.")


class BehindBody(Body):
    """How far something is behind; null if unknown."""

    records = serializers.IntegerField(allow_null=True)
    gone = serializers.IntegerField(help_text="Offsets deleted before they were read.")
    seconds = serializers.FloatField(allow_null=True)
    arrival_rate = serializers.FloatField(allow_null=True, help_text="Records per second.")
    processing_rate = serializers.FloatField(allow_null=True, help_text="Records per second.")
    catch_up_s = serializers.FloatField(
        allow_null=True, help_text="Null: never at these rates, or unknown."
    )


class PartitionLagBody(Body):
    """One partition of a topic."""

    partition = serializers.IntegerField(source="row.partition")
    committed = serializers.IntegerField(
        source="row.committed", allow_null=True, help_text="Next offset to read."
    )
    earliest = serializers.IntegerField(source="row.earliest", allow_null=True)
    latest = serializers.IntegerField(source="row.latest", allow_null=True)
    record_at = serializers.DateTimeField(source="row.record_at", allow_null=True)
    seen_at = serializers.DateTimeField(source="row.seen_at")
    behind = BehindBody()
    deleted_at = serializers.DateTimeField(
        source="clock.at",
        allow_null=True,
        default=None,
        help_text="When its first unread record may be deleted.",
    )


class TopicLagBody(Body):
    """One topic that a query reads."""

    topic = serializers.CharField()
    partitions = PartitionLagBody(many=True)
    total = BehindBody()
    skewed = serializers.IntegerField(
        allow_null=True,
        help_text="Partition at least 1,000 records behind and three times the mean of the others.",
    )
    retention_ms = serializers.IntegerField(source="retention.ms", allow_null=True)
    retention_bytes = serializers.IntegerField(source="retention.bytes", allow_null=True)
    compacted = serializers.BooleanField(source="retention.compacts")
    deleted_at = serializers.DateTimeField(allow_null=True)


class GapBody(Body):
    """Offsets [first, until) of one partition that were deleted before they were read."""

    topic = serializers.CharField()
    partition = serializers.IntegerField()
    first = serializers.IntegerField()
    until = serializers.IntegerField()
    offsets = serializers.IntegerField()


class QueryLagBody(Body):
    """How far a query is behind its Kafka sources, run or not."""

    topics = TopicLagBody(many=True)
    total = BehindBody()
    gaps = GapBody(many=True)
    seen_at = serializers.DateTimeField(allow_null=True)
    errors = serializers.ListField(child=serializers.CharField())  # type: ignore[assignment]


class LossBody(Body):
    """One entry of the loss ledger."""

    id = serializers.IntegerField(source="pk")
    kind = serializers.ChoiceField([str(kind) for kind in LossKind])
    source = serializers.CharField()  # type: ignore[assignment]
    partition = serializers.IntegerField(allow_null=True)
    from_offset = serializers.IntegerField(allow_null=True)
    to_offset = serializers.IntegerField(allow_null=True, help_text="First offset still available.")
    offsets = serializers.IntegerField(allow_null=True)
    records = serializers.IntegerField(
        allow_null=True, help_text="Null: the topic is compacted or transactional."
    )
    batch = serializers.IntegerField(allow_null=True)
    day = serializers.DateField(allow_null=True, help_text="Late rows are counted by day.")
    noticed_at = serializers.DateTimeField()
    accepted_by = serializers.CharField(allow_blank=True)
    accepted_at = serializers.DateTimeField(allow_null=True)
    operation = serializers.UUIDField(source="operation.uuid", allow_null=True, default=None)


class QueryLagView(ApiView):
    """A query's lag."""

    @describe(operation_id="get_query_lag", responses=QueryLagBody)
    def get(self, request: Request, name: str) -> Response:
        """Return lag by topic and partition, what will be deleted when, and what is lost."""
        found: Any = lag_of(definitions.query(name), now=self.now)
        return Response(QueryLagBody(found).data)


class QueryLossesView(ApiView):
    """A query's loss ledger."""

    @describe(operation_id="list_query_losses", parameters=PAGING, responses=listed(LossBody))
    def get(self, request: Request, name: str) -> Response:
        """List what the query never read, newest first."""
        rows = loss_ledger.losses(definitions.query(name))
        return page_of_rows(request, rows, lambda row: LossBody(row).data, by="noticed_at")


class QueryGoOnView(ApiView):
    """The verb go-on: continue after a loss."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(operation_id="go_on_query", request=GoOn, responses={202: OperationBody})
    def post(self, request: Request, name: str) -> Response:
        """Accept lost source data and continue without it; the state is kept."""
        sent = self.read(GoOn, request.data or {})
        operation = go_on(
            query=definitions.query(name), offsets=sent["offsets"], actor=self.actor, now=self.now
        )
        return accepted(operation)
