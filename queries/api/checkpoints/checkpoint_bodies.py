"""Request and response bodies for a query's checkpoint and actions on it."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from rest_framework import serializers

from queries.api.derived import Body, described, serializer_for
from queries.api.schema import ObjectField
from queries.checkpoints.batches import LoggedBatch
from queries.domain.kafka.offset_ranges import OffsetRange
from queries.models.checkpoints import Snapshot
from queries.services.checkpoints.preview import CheckpointPreview
from queries.services.checkpoints.source_starts import TARGETS, MovedSource


@serializer_for(OffsetRange, "source topic partition start end records")
class RangeBody(Body):
    """The offsets that were read from one Kafka partition.

    source: The source's position in the log, or its name.
    start: Null if the partition was not known before.
    end: The next offset to read, exclusive.
    """


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch, and when the logs that it stands in were read."""

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

    read_at: When the logs were read: now, or earlier if the checkpoint is on a storage.
    state: As of `read_at`: a batch that was in flight then may have committed since.
    sources: The end offset of each source (position or name), as Spark writes it.
    records: Computed from the offsets; Kafka only. Null if a topic was recreated.
    watermark_after_9999: Whether the watermark is null because it is after the year 9999.
    upgraded: Whether this batch is the first one for which the log names its sources.
    left_out_before: Number of preceding batches that async progress tracking did not log.
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
