"""Request and response bodies for a query's checkpoint and actions on it."""

from typing import ClassVar

from rest_framework import serializers

from queries.api.derived import Body, described, shows
from queries.api.schema import ObjectField
from queries.checkpoints.batches import Batch
from queries.domain.kafka.offset_ranges import Range
from queries.models.checkpoints import Snapshot
from queries.services.checkpoints.preview import Preview
from queries.services.checkpoints.source_starts import TARGETS, Moved


@shows(Range, "source topic partition start end records")
class RangeBody(Body):
    """What was read from one Kafka partition.

    source: Its position in the log, or its name.
    start: Null: not known before.
    end: The next offset to read, exclusive.
    """


@shows(
    Batch,
    "batch=number state begun_at committed_at watermark sources ranges records "
    "left_out_before problem watermark_after_9999 upgraded",
)
class BatchBody(Body):
    """One batch according to the checkpoint's logs.

    sources: Position or name of each source: the end offset, as Spark writes it.
    records: From the offsets; Kafka only. Null if unknown because a topic was recreated.
    watermark_after_9999: The watermark is null because it is after the year 9999.
    upgraded: The log began to name its sources with this batch.
    left_out_before: Preceding batches that async progress tracking left out of the log.
    """


@shows(Snapshot, "id=pk batch location bytes taken_at pinned reason")
class SnapshotBody(Body):
    """A snapshot of a checkpoint."""


@shows(Moved, "source what before after repeated skipped note")
class MovedBody(Body):
    """One partition or file source, before and after.

    what: topic-partition, or the files.
    repeated: Records or files read again.
    """


@shows(Preview, "verb refusal batch newest batches records files moved sink warnings")
class PreviewBody(Body):
    """What a rewind or a reset will do; nothing has been changed.

    refusal: Why it would be refused.
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

    batch: The query continues after it.
    """

    batch = serializers.IntegerField(min_value=0, max_value=2**62)
    dry_run = serializers.BooleanField(default=False)


@described
class ResetForm(Body):
    """Where the sources should begin.

    offsets: Kafka: {"topic": {"partition": offset}}.
    """

    to = serializers.ChoiceField(list(TARGETS))
    at = serializers.DateTimeField(allow_null=True, default=None)
    offsets = ObjectField(default=dict)
    dry_run = serializers.BooleanField(default=False)


@described
class CloneForm(Body):
    """A new query from the checkpoint.

    same_sink: Confirm that both queries write to the same place. Not allowed for files.
    """

    name = serializers.CharField(max_length=80)
    sink = ObjectField(allow_null=True, default=None)
    same_sink = serializers.BooleanField(default=False)
    batch = serializers.IntegerField(allow_null=True, default=None, min_value=0, max_value=2**62)
    snapshot = serializers.IntegerField(allow_null=True, default=None, min_value=1, max_value=2**62)
    application = serializers.CharField(allow_blank=True, default="")
