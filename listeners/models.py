"""Drivers' events, each stored once; they use plain ids instead of foreign keys. All [I]."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django.db import models
from django.db.models import Q


def upsert(model: type[Any], rows: Iterable[Any], *key: str) -> None:
    """Insert rows; if the columns of `key` exist already, replace the other columns."""
    columns = [field.name for field in model._meta.concrete_fields if not field.primary_key]
    model._default_manager.bulk_create(
        list(rows),
        batch_size=500,
        update_conflicts=True,
        unique_fields=key,
        update_fields=[name for name in columns if name not in key],
    )


class Event(models.Model):
    """One event as received (except heartbeats and progress, which have their own tables)."""

    driver = models.BigIntegerField()
    epoch = models.BigIntegerField()
    seq = models.BigIntegerField()
    at = models.DateTimeField(db_index=True)
    received_at = models.DateTimeField()
    kind = models.CharField(max_length=12)
    query = models.BigIntegerField(null=True)
    run = models.BigIntegerField(null=True)
    spark_run_id = models.CharField(max_length=36, default="")
    body = models.JSONField(default=dict)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["driver", "seq"], name="event_driver_seq")
        ]
        indexes: ClassVar = [models.Index(fields=["query", "-at"], name="event_query_at")]

    def __str__(self) -> str:
        return f"{self.kind} {self.driver}/{self.seq}"


class Progress(models.Model):
    """One executed batch of a run: the figures charted on the pages, and Spark's own JSON."""

    driver = models.BigIntegerField()
    epoch = models.BigIntegerField()
    seq = models.BigIntegerField()
    query = models.BigIntegerField()
    run = models.BigIntegerField()
    spark_run_id = models.CharField(max_length=36)
    batch = models.BigIntegerField()
    at = models.DateTimeField()  # the trigger's start (Spark's timestamp)
    received_at = models.DateTimeField()
    repaired = models.BooleanField(default=False)
    num_input_rows = models.BigIntegerField(default=0)
    input_rows_per_second = models.FloatField(null=True)
    processed_rows_per_second = models.FloatField(null=True)
    batch_duration_ms = models.BigIntegerField(default=0)
    state_rows = models.BigIntegerField(null=True)
    watermark = models.DateTimeField(null=True)
    body = models.JSONField(default=dict)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["driver", "seq"], name="progress_driver_seq"),
            models.UniqueConstraint(fields=["spark_run_id", "batch"], name="progress_run_batch"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["query", "-at"], name="progress_query_at"),
            models.Index(fields=["run", "batch"], name="progress_run"),
            models.Index(  # few rows: restored from the driver's memory or spool
                fields=["query", "driver"], name="progress_repaired", condition=Q(repaired=True)
            ),
        ]

    def __str__(self) -> str:
        return f"batch {self.batch} of run {self.run}"


class Latest(models.Model):
    """The latest state of a query, advanced only by (epoch, seq) of its driver."""

    query = models.BigIntegerField(primary_key=True)
    driver = models.BigIntegerField()
    epoch = models.BigIntegerField()
    seq = models.BigIntegerField()
    run = models.BigIntegerField()
    at = models.DateTimeField()  # of the newest event of any kind
    idle_at = models.DateTimeField(null=True)  # the newest idle event
    progress_at = models.DateTimeField(null=True)  # the newest executed batch
    batch = models.BigIntegerField(null=True)
    progress = models.JSONField(null=True)  # its Spark JSON
    progress_run = models.BigIntegerField(null=True)  # its run

    def __str__(self) -> str:
        return f"latest of query {self.query}"


class Received(models.Model):
    """A range of a driver's sequence, or of a run's batch ids, that is stored without holes.

    Numbers between two ranges of one key are missing. Ranges are stored in addition to the events,
    so that finding holes is cheap and retention does not create any.
    """

    kind = models.CharField(max_length=8)  # seq or batch
    driver = models.BigIntegerField()
    epoch = models.BigIntegerField()  # the driver's
    spark_run_id = models.CharField(max_length=36, default="")  # batch only
    query = models.BigIntegerField(null=True)  # batch only
    run = models.BigIntegerField(null=True)  # batch only
    first = models.BigIntegerField()  # inclusive
    last = models.BigIntegerField()  # inclusive
    at = models.DateTimeField(db_index=True)  # when it last grew; for retention

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["driver", "kind", "spark_run_id", "first"], name="received_first"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.first}–{self.last} of driver {self.driver}"


class Cursor(models.Model):
    """The position of one kind of bulk work, its current worker, and its backlog."""

    name = models.CharField(max_length=20, primary_key=True)
    position = models.BigIntegerField(default=0)  # for work that reads rows in id order
    leased_until = models.DateTimeField(null=True)  # one worker at a time; renewed by each slice
    ran_at = models.DateTimeField(null=True)  # last run, as far as time allowed
    left_rows = models.BigIntegerField(default=0)  # rows it then had no time for
    left_since = models.DateTimeField(null=True)  # age of the oldest of them

    def __str__(self) -> str:
        return f"{self.name} at {self.position}"

    @classmethod
    def advance(cls, name: str, position: int) -> None:
        """Move a cursor forward; never move it back."""
        cls.objects.get_or_create(name=name)
        cls.objects.filter(name=name, position__lt=position).update(position=position)


class Gap(models.Model):
    """Missing events of a driver (sequence) or missing batches of a run (batch ids)."""

    kind = models.CharField(max_length=8)  # seq or batch
    driver = models.BigIntegerField()
    query = models.BigIntegerField(null=True)
    run = models.BigIntegerField(null=True)
    spark_run_id = models.CharField(max_length=36, default="")
    first = models.BigIntegerField()  # inclusive
    last = models.BigIntegerField()  # inclusive
    missing = models.IntegerField()  # last - first + 1 when first seen
    repaired = models.IntegerField(default=0)
    source = models.CharField(max_length=10, default="")  # spool, memory or checkpoint
    noticed_at = models.DateTimeField(db_index=True)
    closed_at = models.DateTimeField(null=True)  # repaired completely, or beyond repair
    beyond_repair = models.BooleanField(default=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["kind", "driver", "spark_run_id", "first"], name="gap_first"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} gap {self.first}–{self.last}"


class Heartbeat(models.Model):
    """The newest heartbeat of a driver."""

    driver = models.BigIntegerField(primary_key=True)
    epoch = models.BigIntegerField()
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    received_at = models.DateTimeField()
    body = models.JSONField(default=dict)  # wire.Heartbeat's JSON form

    def __str__(self) -> str:
        return f"heartbeat of driver {self.driver}"


class TaskTime(models.Model):
    """A run's cumulative task and waiting times at the end of a time bucket."""

    run = models.BigIntegerField()
    start = models.DateTimeField(db_index=True)  # of the bucket: listeners.latest.TASK_TIME_S
    at = models.DateTimeField()  # of the heartbeat that reported it
    task_ms = models.BigIntegerField()
    waited_ms = models.BigIntegerField()
    waited_for = models.JSONField(default=dict)  # {run number as text: ms}

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "start"], name="task_time_bucket")
        ]

    def __str__(self) -> str:
        return f"task time of run {self.run}"


class SlowBatch(models.Model):
    """The driver's evidence on one slow batch; Spark's progress of it is in `Progress`."""

    driver = models.BigIntegerField()
    seq = models.BigIntegerField()
    query = models.BigIntegerField()
    run = models.BigIntegerField()
    batch = models.BigIntegerField()
    took_ms = models.BigIntegerField()
    at = models.DateTimeField(db_index=True)  # when the evidence was collected; for retention
    body = models.JSONField(default=dict)  # see listeners.spark.slow_batches

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["driver", "seq"], name="slow_batch_driver_seq")
        ]
        indexes: ClassVar = [models.Index(fields=["query", "-at"], name="slow_batch_query_at")]

    def __str__(self) -> str:
        return f"slow batch {self.batch} of run {self.run}"


class DroppedEvents(models.Model):
    """An increase of Spark's drop counter between two heartbeats: number, queue and times."""

    driver = models.BigIntegerField(db_index=True)
    queue = models.CharField(max_length=40)  # streams, ours or outbox
    count = models.BigIntegerField()
    total = models.BigIntegerField()  # the counter's new value
    since = models.DateTimeField()
    until = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["driver", "queue", "total"], name="dropped_total")
        ]

    def __str__(self) -> str:
        return f"{self.count} dropped from {self.queue}"


class DeadLetter(models.Model):
    """A stream entry that could not be read, with the reason."""

    entry = models.CharField(max_length=40, unique=True)  # the stream's entry id
    received_at = models.DateTimeField()
    reason = models.TextField()
    data = models.BinaryField()

    def __str__(self) -> str:
        return f"dead letter {self.entry}"


class Trouble(models.Model):
    """An element that a loop skips, either temporarily or for good if it was set aside."""

    loop = models.CharField(max_length=40)  # "gaps"
    about = models.CharField(max_length=120)  # "driver 7"
    cause = models.CharField(max_length=300)  # the newest error, masked
    times = models.BigIntegerField(default=0)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField(db_index=True)
    set_aside = models.BooleanField(default=False)  # never tried again

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["loop", "about"], name="trouble_of_element")
        ]

    def __str__(self) -> str:
        return f"{self.loop}: {self.about}"


class Rollup(models.Model):
    """A query's progress summed over one time bucket, for long charts."""

    query = models.BigIntegerField()
    width_s = models.IntegerField()  # 10, 60 or 3600
    start = models.DateTimeField()
    batches = models.IntegerField()
    rows = models.BigIntegerField()
    duration_ms_min = models.BigIntegerField()
    duration_ms_max = models.BigIntegerField()
    duration_ms_sum = models.BigIntegerField()
    input_rate_max = models.FloatField(null=True)
    processed_rate_max = models.FloatField(null=True)
    state_rows_max = models.BigIntegerField(null=True)
    watermark_delay_s_max = models.FloatField(null=True)
    # Sums of durationMs (`listeners.rollups.PHASES`); None if no batch reported the phase.
    add_batch_ms = models.BigIntegerField(null=True)
    get_batch_ms = models.BigIntegerField(null=True)
    latest_offset_ms = models.BigIntegerField(null=True)
    query_planning_ms = models.BigIntegerField(null=True)
    wal_commit_ms = models.BigIntegerField(null=True)
    commit_offsets_ms = models.BigIntegerField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["query", "width_s", "start"], name="rollup_bucket")
        ]

    def __str__(self) -> str:
        return f"rollup {self.width_s} s of query {self.query}"
