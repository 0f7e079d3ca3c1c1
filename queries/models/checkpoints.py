"""Snapshots of checkpoints, lost source records, and lag."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from queries.domain.states import LossKind


class Snapshot(models.Model):
    """A copy of a checkpoint as of one batch; hard links on a local file system."""

    checkpoint = models.ForeignKey(
        "queries.Checkpoint", on_delete=models.PROTECT, related_name="snapshots"
    )
    batch = models.BigIntegerField()  # the newest committed batch in it
    location = models.CharField(max_length=1024, unique=True)  # "file:///…"
    bytes = models.BigIntegerField(default=0)
    taken_at = models.DateTimeField()
    pinned = models.BooleanField(default=False)  # exempt from pruning
    reason = models.CharField(max_length=200, default="")  # "before the rewind to batch 40"
    operation = models.ForeignKey(
        "queries.Operation", null=True, on_delete=models.SET_NULL, related_name="snapshots"
    )
    removed_at = models.DateTimeField(null=True)  # files deleted; the row is history

    class Meta:
        ordering: ClassVar = ["-taken_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.location} at batch {self.batch}"


class Loss(models.Model):
    """One entry of a query's loss ledger: what was lost, how much, when, and who accepted it."""

    query = models.ForeignKey("queries.Query", on_delete=models.CASCADE, related_name="losses")
    kind = models.CharField(max_length=12, choices=[(kind, kind) for kind in LossKind])
    source = models.CharField(max_length=255)  # topic, or name of source or operator
    partition = models.IntegerField(null=True)
    topic_id = models.CharField(max_length=40, default="")  # Kafka's; "" if unknown
    from_offset = models.BigIntegerField(null=True)  # first lost
    to_offset = models.BigIntegerField(null=True)  # first that exists again
    offsets = models.BigIntegerField(null=True)  # number of missing offsets
    records = models.BigIntegerField(null=True)  # null: unknown (compacted, transactional)
    batch = models.BigIntegerField(null=True)
    day = models.DateField(null=True)  # late rows are counted by day
    noticed_at = models.DateTimeField()
    accepted_by = models.CharField(max_length=150, default="")
    accepted_at = models.DateTimeField(null=True)
    operation = models.ForeignKey(
        "queries.Operation", null=True, on_delete=models.SET_NULL, related_name="losses"
    )
    corrects = models.ForeignKey(  # the line it corrects; null: a loss
        "self", null=True, on_delete=models.CASCADE, related_name="corrections"
    )
    note = models.TextField(default="")  # of a correction: the evidence
    noted_by = models.CharField(max_length=150, default="")  # of a correction; "" for Headgate

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["query", "source", "day"],
                name="loss_late_day",
                condition=Q(kind=LossKind.LATE),
            ),
        ]
        ordering: ClassVar = ["-noticed_at", "-pk"]
        verbose_name_plural = "losses"

    def __str__(self) -> str:
        return f"{self.kind} {self.source}"


#: Values of `partition` in a table's row, and in the row with the reason for missing or old rows.
TABLE, NO_DATA = -2, -1


class SourceLag(models.Model):
    """The latest offsets of one partition of a query's source, whether the query runs or not.

    A table has one row: its offsets are versions (`queries.domain.tables.lag`).
    """

    query = models.ForeignKey("queries.Query", on_delete=models.CASCADE, related_name="lags")
    source = models.CharField(max_length=255)  # topic, or a table's path or name
    partition = models.IntegerField()  # of a topic; `TABLE` for a table
    committed = models.BigIntegerField(null=True)  # next offset to read; null: nothing committed
    earliest = models.BigIntegerField(null=True)
    latest = models.BigIntegerField(null=True)  # next offset to be written
    record_at = models.DateTimeField(null=True)  # time of the record at `committed`
    deleted_at = models.DateTimeField(null=True)  # when that record will be deleted
    arrival_rate = models.FloatField(null=True)  # records a second, between passes
    processing_rate = models.FloatField(null=True)
    record_bytes = models.FloatField(null=True)  # per record, uncompressed, sampled
    retention_ms = models.BigIntegerField(null=True)  # of the topic; null: unlimited
    retention_bytes = models.BigIntegerField(null=True)  # per partition; null: unlimited
    compacted = models.BooleanField(null=True)  # then offsets are not records; null: unknown
    holes = models.BooleanField(default=False)  # offsets without records were seen: transactions
    stable = models.BigIntegerField(null=True)  # last stable offset; null: does not apply
    unread_since = models.DateTimeField(null=True)  # since when `committed` can be read
    replaced = models.BooleanField(default=False)  # `committed` belongs to a deleted topic
    seen_at = models.DateTimeField()  # of the broker's newest answer
    error = models.TextField(default="")  # of `NO_DATA` and tables: why the source has no answer
    table_format = models.CharField(max_length=10, default="", db_default="")  # "" for topics
    files = models.BigIntegerField(null=True)  # unread files of a table; null: unknown
    bytes = models.BigIntegerField(null=True)  # of these files; null: unknown
    removal = models.CharField(max_length=10, default="", db_default="")  # kind of `deleted_at`
    removed_version = models.BigIntegerField(null=True)  # what is removed then

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["query", "source", "partition"], name="source_lag_partition"
            )
        ]
        ordering: ClassVar = ["source", "partition"]

    def __str__(self) -> str:
        return f"{self.source}-{self.partition}"

    @property
    def counts_records(self) -> bool:
        """Return whether its offsets are records, as far as known."""
        return not self.compacted and not self.holes
