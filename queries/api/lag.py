"""A query's lag, its losses, and continuing after a loss, over REST."""

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.bodies import Body, OperationBody, described, serializer_for
from queries.api.checkpoints import PreviewBody
from queries.api.definitions import changes
from queries.api.methods import Sent, accepts, answers, lists
from queries.domain.kafka.lag import SKEW_RULE, Behind
from queries.domain.kafka.losses import OffsetGap
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss
from queries.models.history import Operation
from queries.roles import OPERATE
from queries.selectors.definitions import definitions
from queries.selectors.kafka import lag
from queries.selectors.kafka.lag import PartitionLag, QueryLag, TopicLag, lag_of
from queries.selectors.tables import TableLine
from queries.services.checkpoints.preview import preview_go_on
from queries.services.kafka.go_on_after_loss import go_on
from queries.services.kafka.loss_corrections import NOTE_MOST, correct


@described
class GoOn(changes.Form):
    """The accepted loss: the number of lost offsets returned with the lag.

    offsets: Total over all gaps.
    """

    offsets = serializers.IntegerField(min_value=1)
    dry_run = serializers.BooleanField(default=False)


@described
class Correct(changes.Form):
    """Why an entry in the loss ledger is wrong.

    reason: How you know that these records were not lost; shown with the correction.
    """

    reason = serializers.CharField(max_length=NOTE_MOST)


@serializer_for(Behind, "records unit waiting gone seconds arrival_rate processing_rate catch_up_s")
class BehindBody(Body):
    """How far a query, topic or partition is behind; null if unknown.

    records: Number of unread records, in `unit`.
    unit: "offsets": the topic is compacted or transactional, or not readable; else "records".
    waiting: Unread records that are waiting for an open transaction.
    gone: Offsets deleted before a batch committed them.
    arrival_rate: Records per second.
    processing_rate: Records per second.
    catch_up_s: Null if it never catches up at these rates, or if unknown.
    """


@serializer_for(
    PartitionLag,
    "row.partition row.committed row.earliest row.latest row.record_at row.seen_at behind "
    "deleted_at=clock.at",
)
class PartitionLagBody(Body):
    """One partition of a topic.

    committed: Next offset to read.
    deleted_at: When its first unread record can be deleted.
    """


@serializer_for(
    TopicLag,
    "topic partitions total skewed retention_ms=retention.ms "
    "retention_bytes=retention.bytes compacted=retention.compacts deleted_at",
)
class TopicLagBody(Body):
    """One topic that a query reads.

    compacted: Null if unknown.
    """

    skewed = serializers.IntegerField(allow_null=True, help_text=f"Partition that is {SKEW_RULE}.")


@serializer_for(
    TableLine,
    "row.source row.table_format row.committed row.earliest row.latest row.record_at row.seen_at "
    "lag.versions lag.files lag.bytes seconds row.arrival_rate row.processing_rate catch_up_s "
    "row.deleted_at expires row.error",
)
class TableLineBody(Body):
    """How far a query is behind one Delta or Iceberg table; a number is null if it is unknown.

    source: The table's path or name, as in the definition.
    table_format: "delta" or "iceberg".
    committed: Next version to read. Iceberg snapshots are numbered by their sequence number.
    earliest: First version left in the table's log; for Delta, null unless one that is needed is
    missing.
    latest: Next version to be written.
    record_at: When the first unread version was committed.
    versions: Unread versions.
    files: Files in the unread versions; before the first batch, those that it can read.
    arrival_rate: Versions per second.
    processing_rate: Versions per second.
    deleted_at: The earliest time at which something that the query needs can be removed.
    expires: What can be removed then, and how, as a sentence.
    error: Why the numbers are old or missing, what is lost, or at which version the query will
    fail.
    """


@serializer_for(OffsetGap, "topic partition first until offsets")
class GapBody(Body):
    """Offsets [first, until) in a partition that were deleted before a batch committed them."""


@serializer_for(QueryLag, "topics tables total gaps certain seen_at errors read_at unknown_because")
class QueryLagBody(Body):
    """How far a query, running or stopped, is behind its Kafka sources and tables.

    total: Total for the topics. certain: Whether the gaps are certainly lost: no open run can have
    fetched them. errors: Why numbers are old or missing, each with its age if old. read_at: When
    the sources were last polled, whether they responded or not; null if never. unknown_because:
    "Unknown, because …": why the committed offsets are unknown; else empty.
    """


@serializer_for(
    Loss,
    "id=pk kind source partition from_offset to_offset offsets records batch day noticed_at "
    "accepted_by accepted_at operation=operation.uuid corrects=corrects.pk note noted_by",
    kind=LossKind,
)
class LossBody(Body):
    """One entry of the loss ledger.

    corrects: For a correction (kind "corrected"): the entry whose records were not lost.
    note: For a correction: how it is known that they were not lost.
    noted_by: For a correction: the user who made it; empty if Headgate did.
    to_offset: First offset still available.
    records: Null if the topic is compacted or transactional.
    day: For late rows, which are counted by day.
    """


class QueryLagView(ApiView):
    """A query's lag."""

    @answers("get_query_lag", QueryLagBody)
    def get(self, name: str) -> QueryLag:
        """Return the lag by topic and partition, upcoming deletions, and losses."""
        return lag_of(definitions.query(name), now=self.now)


class QueryLossesView(ApiView):
    """A query's loss ledger."""

    @lists("list_query_losses", LossBody, by="noticed_at pk")
    def get(self, name: str) -> QuerySet[Loss]:
        """List the query's losses (data it never read), newest first."""
        return lag.losses(definitions.query(name))


class QueryLossCorrectView(ApiView):
    """The `correct` verb for a ledger entry."""

    @answers("correct_query_loss", LossBody, role=OPERATE, form=Correct)
    def post(self, sent: Sent, name: str, loss_id: int) -> Loss:
        """Revert an entry whose records were not lost; return the correcting entry. Both remain."""
        loss = lag.loss(definitions.query(name), loss_id)
        return correct(loss=loss, **sent, **self.by)[0]


class QueryGoOnView(ApiView):
    """The `go-on` verb: continue after a loss."""

    @accepts("go_on_query", form=GoOn, responses={200: PreviewBody, 202: OperationBody})
    def post(self, sent: Sent, name: str) -> Operation | Response:
        """Continue without lost source data, with the state; `dry_run` only returns a preview."""
        if sent.pop("dry_run"):
            return Response(PreviewBody(preview_go_on(definitions.query(name))).data)
        return go_on(query=definitions.query(name), **sent, **self.by)
