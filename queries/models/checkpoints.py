"""Snapshots of checkpoints, lost records of their sources, and how far they are behind."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from queries.domain.states import LossKind


class Snapshot(models.Model):
    """A copy of a checkpoint as it was after one batch; hard links on a local file system."""

    checkpoint = models.ForeignKey(
        "queries.Checkpoint", on_delete=models.PROTECT, related_name="snapshots"
    )
    batch = models.BigIntegerField()  # the newest batch that it holds as committed
    location = models.CharField(max_length=1024, unique=True)  # "file:///…"
    bytes = models.BigIntegerField(default=0)
    taken_at = models.DateTimeField()
    pinned = models.BooleanField(default=False)  # pruning leaves it alone
    reason = models.CharField(max_length=200, default="")  # "before the rewind to batch 40"
    operation = models.ForeignKey(
        "queries.Operation", null=True, on_delete=models.SET_NULL, related_name="snapshots"
    )
    removed_at = models.DateTimeField(null=True)  # its files are gone; the row is history

    class Meta:
        ordering: ClassVar = ["-taken_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.location} at batch {self.batch}"


class Loss(models.Model):
    """One line of a query's loss ledger: what was lost, how many, when, who accepted it."""

    query = models.ForeignKey("queries.Query", on_delete=models.CASCADE, related_name="losses")
    kind = models.CharField(max_length=12, choices=[(kind, kind) for kind in LossKind])
    source = models.CharField(max_length=255)  # topic, or the source's or operator's name
    partition = models.IntegerField(null=True)
    topic_id = models.CharField(max_length=40, default="")  # Kafka's; "": not known
    from_offset = models.BigIntegerField(null=True)  # first lost
    to_offset = models.BigIntegerField(null=True)  # first that is there again
    offsets = models.BigIntegerField(null=True)  # how many offsets are gone
    records = models.BigIntegerField(null=True)  # null: not known (compacted, transactional)
    batch = models.BigIntegerField(null=True)
    day = models.DateField(null=True)  # late rows are counted by day
    noticed_at = models.DateTimeField()
    accepted_by = models.CharField(max_length=150, default="")
    accepted_at = models.DateTimeField(null=True)
    operation = models.ForeignKey(
        "queries.Operation", null=True, on_delete=models.SET_NULL, related_name="losses"
    )

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


class SourceLag(models.Model):
    """The latest look at one partition of one source of a query, run or not."""

    query = models.ForeignKey("queries.Query", on_delete=models.CASCADE, related_name="lags")
    source = models.CharField(max_length=255)  # topic
    partition = models.IntegerField()
    committed = models.BigIntegerField(null=True)  # next offset to read; null: nothing committed
    earliest = models.BigIntegerField(null=True)
    latest = models.BigIntegerField(null=True)  # next offset that will be written
    record_at = models.DateTimeField(null=True)  # time of the record at `committed`
    deleted_at = models.DateTimeField(null=True)  # when that record will be deleted
    arrival_rate = models.FloatField(null=True)  # records a second, between looks
    processing_rate = models.FloatField(null=True)
    record_bytes = models.FloatField(null=True)  # of a record, uncompressed, as sampled
    retention_ms = models.BigIntegerField(null=True)  # the topic's; null: none
    retention_bytes = models.BigIntegerField(null=True)  # a partition's; null: none
    compacted = models.BooleanField(null=True)  # offsets are not records then; null: not known
    holes = models.BooleanField(default=False)  # offsets without a record seen: transactions
    stable = models.BigIntegerField(null=True)  # the last stable offset; null: not to be heeded
    unread_since = models.DateTimeField(null=True)  # since when `committed` is there to be read
    replaced = models.BooleanField(default=False)  # `committed` is of a topic that is gone
    seen_at = models.DateTimeField()  # of the newest look that the broker answered
    error = models.TextField(default="")  # why the broker could not be asked

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["query", "source", "partition"], name="source_lag_partition"
            )
        ]
        ordering: ClassVar = ["source", "partition"]

    def __str__(self) -> str:
        return f"{self.source}-{self.partition}"
