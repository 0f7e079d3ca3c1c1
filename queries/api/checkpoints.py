"""A query's checkpoint over REST: its batches, its snapshots, and actions on it."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.bodies import Body, OperationBody, described, serializer_for
from queries.api.methods import Key, Sent, accepts, answers, lists, page
from queries.api.schema import ObjectField
from queries.checkpoints import batches
from queries.checkpoints.batches import LoggedBatch
from queries.domain.kafka.offsets import OffsetRange
from queries.models.checkpoints import Snapshot
from queries.models.history import Operation
from queries.roles import DEFINE, OPERATE
from queries.selectors import checkpoints as reads
from queries.selectors.access import insist_clone
from queries.selectors.definitions.definitions import query as query_of
from queries.selectors.hosts import read_at_of
from queries.services.checkpoints import clone, remote, rewind_and_reset, snapshot
from queries.services.checkpoints.preview import (
    CheckpointPreview,
    preview_clone,
    preview_reset,
    preview_rewind,
)
from queries.services.checkpoints.source_starts import TARGETS, MovedSource, WantedStart, offsets_of
from queries.services.checkpoints.switching import current


@serializer_for(OffsetRange, "source topic partition start end records")
class RangeBody(Body):
    """The offsets that were read from one Kafka partition.

    source: The source's position in the log, or its name.
    start: Null if the partition was not known before.
    end: The next offset to read, exclusive.
    """


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch, and when the logs that contain it were read."""

    batch: LoggedBatch
    read_at: datetime


@serializer_for(
    ReadBatch,
    "batch=batch.number batch.state batch.begun_at batch.committed_at batch.watermark "
    "batch.sources batch.ranges batch.records batch.left_out_before batch.problem "
    "batch.watermark_after_9999 batch.upgraded read_at",
)
class BatchBody(Body):
    """One batch, as recorded in the checkpoint's logs.

    read_at: When the logs were read: now, or earlier if the checkpoint is on remote storage. state:
    As of `read_at`: a batch that was in flight then may have committed since. sources: The end
    offset of each source (position or name), as Spark writes it. records: Computed from the
    offsets; Kafka only. Null if a topic was recreated. watermark_after_9999: Whether the watermark
    is null because it is after the year 9999. upgraded: Whether this is the first batch for which
    the log names its sources. left_out_before: Number of preceding batches that async progress
    tracking did not log.
    """


@serializer_for(Snapshot, "id=pk batch location bytes taken_at pinned reason")
class SnapshotBody(Body):
    """A snapshot of a checkpoint."""


@serializer_for(MovedSource, "source what before after repeated skipped note")
class MovedBody(Body):
    """One partition or file source, before and after.

    what: A partition (topic-partition), or the files.
    repeated: Number of records or files that are read again.
    """


@serializer_for(
    CheckpointPreview, "verb refusal batch newest batches records files moved sink warnings"
)
class PreviewBody(Body):
    """A preview of a rewind, reset, clone or go-on; nothing has been changed.

    refusal: Why the action would be refused.
    newest: The newest committed batch.
    batches: Number of replayed batches.
    """


class SnapshotForm(Body):
    """A snapshot to take."""

    batch = serializers.IntegerField(allow_null=True, default=None, min_value=0, max_value=2**62)
    reason = serializers.CharField(default="", allow_blank=True, max_length=200)
    pinned = serializers.BooleanField(default=False)


class SnapshotChange(Body):
    """The changeable fields of a snapshot."""

    ignored: ClassVar[tuple[str, ...]] = ()

    pinned = serializers.BooleanField()


@described
class RewindForm(Body):
    """Where to rewind to.

    batch: The batch after which the query continues.
    """

    batch = serializers.IntegerField(min_value=0, max_value=2**62)
    dry_run = serializers.BooleanField(default=False)


@described
class ResetForm(Body):
    """The position at which the sources start.

    offsets: Kafka: {"topic": {"partition": offset}}.
    """

    to = serializers.ChoiceField(list(TARGETS))
    at = serializers.DateTimeField(allow_null=True, default=None)
    offsets = ObjectField(default=dict)
    dry_run = serializers.BooleanField(default=False)


@described
class CloneForm(Body):
    """A new query that continues from the checkpoint.

    same_sink: Confirm that both queries write to the same place. Not allowed for files.
    """

    name = serializers.CharField(max_length=80)
    sink = ObjectField(allow_null=True, default=None)
    same_sink = serializers.BooleanField(default=False)
    batch = serializers.IntegerField(allow_null=True, default=None, min_value=0, max_value=2**62)
    snapshot = serializers.IntegerField(allow_null=True, default=None, min_value=1, max_value=2**62)
    application = serializers.CharField(allow_blank=True, default="")
    dry_run = serializers.BooleanField(default=False)


class QueryBatchesView(ApiView):
    """The batches in a query's checkpoint."""

    @lists("list_query_batches", BatchBody)
    def get(self, name: str) -> Response:
        """List the batches in the checkpoint's logs, newest first."""
        location = current(query_of(name)).location
        logs = remote.readable_logs(location, fresh_for=None)
        read_at = read_at_of(location) or self.now

        def fetch(after: Key | None, count: int) -> list[ReadBatch]:
            page_rows = batches.page(logs, before=int(after[0]) if after else None, limit=count)
            return [ReadBatch(batch, read_at) for batch in page_rows]

        return page(self.request, fetch, lambda row: [row.batch.number], BatchBody)


class QuerySnapshotsView(ApiView):
    """The snapshots of a query's checkpoints."""

    @lists("list_query_snapshots", SnapshotBody)
    def get(self, name: str) -> QuerySet[Snapshot]:
        """List the snapshots, newest first."""
        return reads.snapshots_of(query_of(name))

    @accepts("take_query_snapshot", form=SnapshotForm)
    def post(self, sent: Sent, name: str) -> Operation:
        """Take a snapshot of the checkpoint as of a batch (by default the newest)."""
        return snapshot.request_snapshot(query=query_of(name), **sent, **self.by)


class QuerySnapshotView(ApiView):
    """One snapshot."""

    @answers("read_query_snapshot", SnapshotBody)
    def get(self, name: str, number: int) -> Snapshot:
        """Return a snapshot."""
        return reads.snapshot_of(query_of(name), number)

    @answers("pin_query_snapshot", SnapshotBody, role=OPERATE, form=SnapshotChange)
    def patch(self, sent: Sent, name: str, number: int) -> Snapshot:
        """Pin a snapshot so that it is not removed automatically, or unpin it."""
        row = reads.snapshot_of(query_of(name), number)
        snapshot.pin(row, **sent)
        row.refresh_from_db()
        return row

    @answers("remove_query_snapshot", None, role=OPERATE)
    def delete(self, name: str, number: int) -> None:
        """Delete a snapshot's files permanently, unless the snapshot is protected (`pinned`)."""
        snapshot.remove_snapshot(reads.snapshot_of(query_of(name), number), now=self.now)


#: An action with a preview: the preview, or the operation.
_TRIED = {200: PreviewBody, 202: OperationBody}


class QueryRewindView(ApiView):
    """The `rewind` verb."""

    @accepts("rewind_query", role=DEFINE, form=RewindForm, responses=_TRIED)
    def post(self, sent: Sent, name: str) -> Operation | Response:
        """Continue after an earlier batch, in a new directory; `dry_run` only returns a preview."""
        query, batch = query_of(name), sent["batch"]
        if sent["dry_run"]:
            return Response(PreviewBody(preview_rewind(query, batch)).data)
        return rewind_and_reset.request_rewind(query=query, batch=batch, **self.by)


class QueryResetView(ApiView):
    """The `reset` verb."""

    @accepts("reset_query", role=DEFINE, form=ResetForm, responses=_TRIED)
    def post(self, sent: Sent, name: str) -> Operation | Response:
        """Start the sources elsewhere, without state; `dry_run` only returns a preview."""
        query = query_of(name)
        wish = WantedStart(sent["to"], sent["at"], offsets_of(sent["offsets"]))
        if sent["dry_run"]:
            return Response(PreviewBody(preview_reset(query, wish)).data)
        return rewind_and_reset.request_reset(query=query, wish=wish, **self.by)


class QueryCloneView(ApiView):
    """The `clone` verb."""

    @accepts("clone_query", role=DEFINE, form=CloneForm, responses=_TRIED)
    def post(self, sent: Sent, name: str) -> Operation | Response:
        """Create a stopped query from this query's checkpoint; `dry_run` only returns a preview."""
        if sent.pop("dry_run"):
            same, batch = sent["same_sink"] and sent["sink"] is None, sent["batch"]
            return Response(
                PreviewBody(preview_clone(query_of(name), same_sink=same, batch=batch)).data
            )
        sent["snapshot_id"] = sent.pop("snapshot")
        insist_clone(self.request.user, sent["application"])
        return clone.request_clone(query=query_of(name), **sent, **self.author)
