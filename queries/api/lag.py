"""Lag, losses and going on after a loss, over REST."""

from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.definitions import inputs
from queries.api.derived import described, shows
from queries.api.paging import PAGING, page_of_rows
from queries.api.schema import describe, listed
from queries.api.supervision.history_bodies import OperationBody
from queries.api.supervision.operations import accepted
from queries.api.supervision.query_bodies import Body
from queries.domain.kafka.lag import Behind
from queries.domain.kafka.losses import Gap
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss
from queries.roles import OPERATE
from queries.selectors.definitions import definitions
from queries.selectors.kafka import loss_ledger
from queries.selectors.kafka.lag import PartitionLag, QueryLag, TopicLag, lag_of
from queries.services.kafka.go_on_after_loss import go_on


@described
class GoOn(inputs.Form):
    """How many offsets are accepted as lost: the count that the lag names as gone.

    offsets: Sum over all gaps.
    """

    offsets = serializers.IntegerField(min_value=1)


@shows(Behind, "records gone seconds arrival_rate processing_rate catch_up_s")
class BehindBody(Body):
    """How far something is behind; null where it is not known.

    gone: Offsets deleted before they were read.
    arrival_rate: Records a second.
    processing_rate: Records a second.
    catch_up_s: Null: never at these rates, or not known.
    """


@shows(
    PartitionLag,
    "row.partition row.committed row.earliest row.latest row.record_at row.seen_at behind "
    "deleted_at=clock.at",
)
class PartitionLagBody(Body):
    """One partition of a topic.

    committed: Next offset to read.
    deleted_at: When its first unread record may be deleted.
    """


@shows(
    TopicLag,
    "topic partitions total skewed retention_ms=retention.ms "
    "retention_bytes=retention.bytes compacted=retention.compacts deleted_at",
)
class TopicLagBody(Body):
    """One topic that a query reads.

    skewed: Partition behind by 1,000 records and three times the mean of the others.
    """


@shows(Gap, "topic partition first until offsets")
class GapBody(Body):
    """Offsets [first, until) of one partition that were deleted before they were read."""


@shows(QueryLag, "topics total gaps seen_at errors")
class QueryLagBody(Body):
    """How far a query is behind its Kafka sources, run or not."""


@shows(
    Loss,
    "id=pk kind source partition from_offset to_offset offsets records batch day noticed_at "
    "accepted_by accepted_at operation=operation.uuid",
    kind=LossKind,
)
class LossBody(Body):
    """One line of the loss ledger.

    to_offset: First offset kept again.
    records: Null: the topic is compacted or transactional.
    day: Late rows are counted by day.
    """


class QueryLagView(ApiView):
    """A query's lag."""

    @describe(operation_id="get_query_lag", responses=QueryLagBody)
    def get(self, request: Request, name: str) -> Response:
        """Return lag by topic and partition, what will be deleted when, and what is gone."""
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
    """Going on after a loss."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(operation_id="go_on_query", request=GoOn, responses={202: OperationBody})
    def post(self, request: Request, name: str) -> Response:
        """Accept lost source data and go on from what is left; the state is kept."""
        sent = self.read(GoOn, request.data or {})
        operation = go_on(
            query=definitions.query(name), offsets=sent["offsets"], actor=self.actor, now=self.now
        )
        return accepted(operation)
