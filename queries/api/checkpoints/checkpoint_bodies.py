"""What the API says of a query's checkpoint, and takes for the acts on it."""

from typing import Any, ClassVar

from rest_framework import serializers

from queries.api.schema import ObjectField
from queries.services.checkpoints.source_starts import TARGETS

Body = serializers.Serializer[Any]


class RangeBody(Body):
    """What was read of one Kafka partition."""

    source = serializers.CharField(  # type: ignore[assignment]  # a field of a field's name
        help_text="Its position in the log, or its name."
    )
    topic = serializers.CharField()
    partition = serializers.IntegerField()
    start = serializers.IntegerField(allow_null=True, help_text="Null: not known before.")
    end = serializers.IntegerField(help_text="The next offset to read, exclusive.")
    records = serializers.IntegerField(allow_null=True)


class BatchBody(Body):
    """One batch as the checkpoint's logs tell it."""

    batch = serializers.IntegerField(source="number")
    state = serializers.ChoiceField(["committed", "in flight", "uncommitted", "unreadable"])
    begun_at = serializers.DateTimeField(allow_null=True)
    committed_at = serializers.DateTimeField(allow_null=True)
    watermark = serializers.DateTimeField(allow_null=True)
    sources = ObjectField(
        help_text="Position or name of each source: the end offset, as Spark writes it."
    )
    ranges = RangeBody(many=True)
    records = serializers.IntegerField(allow_null=True, help_text="From the offsets; Kafka only.")
    left_out_before = serializers.IntegerField(
        help_text="Preceding batches that async progress tracking left out of the log."
    )
    problem = serializers.CharField(allow_blank=True)


class SnapshotBody(Body):
    """A snapshot of a checkpoint."""

    id = serializers.IntegerField(source="pk")
    batch = serializers.IntegerField()
    location = serializers.CharField()
    bytes = serializers.IntegerField()
    taken_at = serializers.DateTimeField()
    pinned = serializers.BooleanField()
    reason = serializers.CharField(allow_blank=True)


class MovedBody(Body):
    """One partition or file source, before and after."""

    source = serializers.CharField()  # type: ignore[assignment]  # a field of a field's name
    what = serializers.CharField(help_text="topic-partition, or the files.")
    before = serializers.IntegerField(allow_null=True)
    after = serializers.IntegerField(allow_null=True)
    repeated = serializers.IntegerField(allow_null=True, help_text="Records or files read again.")
    skipped = serializers.IntegerField(allow_null=True)
    note = serializers.CharField(allow_blank=True)


class PreviewBody(Body):
    """What a rewind or a reset will do; nothing has been changed."""

    verb = serializers.CharField()
    refusal = serializers.CharField(allow_blank=True, help_text="Why it is refused.")
    batch = serializers.IntegerField(allow_null=True)
    newest = serializers.IntegerField(allow_null=True, help_text="The newest committed batch.")
    batches = serializers.IntegerField(allow_null=True, help_text="Batches that are replayed.")
    records = serializers.IntegerField(allow_null=True)
    files = serializers.IntegerField(allow_null=True)
    moved = MovedBody(many=True)
    sink = serializers.ListField(child=serializers.CharField())
    warnings = serializers.ListField(child=serializers.CharField())


class SnapshotForm(Body):
    """A snapshot to be taken."""

    batch = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=0, max_value=2**62
    )
    reason = serializers.CharField(required=False, default="", allow_blank=True, max_length=200)
    pinned = serializers.BooleanField(required=False, default=False)


class SnapshotChange(Body):
    """What can be changed of a snapshot."""

    ignored: ClassVar[tuple[str, ...]] = ()

    pinned = serializers.BooleanField()


class RewindForm(Body):
    """Where to rewind to."""

    batch = serializers.IntegerField(
        min_value=0, max_value=2**62, help_text="The query continues after it."
    )
    dry_run = serializers.BooleanField(required=False, default=False)


class ResetForm(Body):
    """Where the sources are to begin."""

    to = serializers.ChoiceField(list(TARGETS))
    at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    offsets = ObjectField(
        required=False, default=dict, help_text='Kafka: {"topic": {"partition": offset}}.'
    )
    dry_run = serializers.BooleanField(required=False, default=False)


class CloneForm(Body):
    """A new query from the checkpoint."""

    name = serializers.CharField(max_length=80)
    sink = ObjectField(required=False, allow_null=True, default=None)
    same_sink = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Confirm that both write to the same place. Refused for files.",
    )
    batch = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=0, max_value=2**62
    )
    snapshot = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=1, max_value=2**62
    )
    application = serializers.CharField(required=False, allow_blank=True, default="")
