"""Queries, their immutable revisions, and the checkpoints they alone may hold."""

from typing import ClassVar

from django.db import models
from django.db.models import Case, Q, Value, When
from django.db.models.functions import Cast
from django.db.models.lookups import Contains

from queries.domain.states import Desired, Hold, Phase, Reason, StopMode
from queries.models.because import BecauseField
from queries.models.query_rank import changing_field, rank_field


class Query(models.Model):
    """One streaming query: its desired state and what is observed."""

    #: [C] unique among those not archived, immutable; [R] `application/query` of a found one
    name = models.CharField(max_length=160)
    application = models.ForeignKey(  # [C]
        "queries.Application", on_delete=models.PROTECT, related_name="queries"
    )
    labels = models.JSONField(default=dict, blank=True)  # [C] as those of an application
    created_at = models.DateTimeField()  # [C]
    archived_at = models.DateTimeField(null=True)  # [O]

    #: [R] what a query that a script starts is known by; "" where it is defined here
    identity = models.CharField(max_length=1200, default="", blank=True)
    asked = models.CharField(max_length=1024, default="", blank=True)  # [R] the script's checkpoint
    temporary = models.CharField(max_length=200, default="", blank=True)  # [R] why it is not kept
    gone_at = models.DateTimeField(
        null=True
    )  # [O] its script has dropped it; [R] null: it starts it

    desired = models.CharField(  # [O]; [R] sets STOPPED when a once/availableNow run completes
        max_length=8, default=Desired.STOPPED, choices=[(d, d) for d in Desired]
    )
    stop_mode = models.CharField(max_length=8, default=StopMode.GRACEFUL)  # [O]
    stop_deadline = models.DateTimeField(null=True)  # [O] a graceful stop becomes immediate
    generation = models.BigIntegerField(default=0)  # [O] rises with each verb
    target_revision = models.ForeignKey(  # [O] pinned by start and restart
        "queries.QueryRevision", null=True, on_delete=models.PROTECT, related_name="+"
    )

    phase = models.CharField(max_length=10, default=Phase.STOPPED, db_index=True)  # [R]
    phase_reason = models.CharField(max_length=60, default=Reason.NEVER_STARTED)  # [R] Reason
    phase_detail = BecauseField()  # [R] what is going on, in addition to the reason
    phase_since = models.DateTimeField(null=True)  # [R]
    reached_generation = models.BigIntegerField(default=0)  # [R]
    seen_generation = models.BigIntegerField(default=0)  # [R] an unseen one clears the counters
    failures = models.IntegerField(default=0)  # [R] failures in a row
    next_attempt_at = models.DateTimeField(null=True)  # [R]
    hold = models.CharField(max_length=8, default="", choices=[(h, h) for h in Hold])  # [R]
    # Written by the task that notes verdicts alone (services/supervision/verdicts.py).
    verdict = models.CharField(max_length=12, default="", blank=True)  # of its health; "": none
    verdict_since = models.DateTimeField(null=True)  # when it was first judged so
    # Written by the lag task alone (docs/decisions: who writes lag and risk); reconcile reads.
    risk = models.TextField(default="")  # what will be lost and when, "" for nothing
    risk_at = models.DateTimeField(null=True)  # when the first of it goes; past: it is gone
    source_reachable = models.BooleanField(null=True)  # null: not known
    source_unreachable_since = models.DateTimeField(null=True)
    # Written by the task that looks ahead alone (services/alerts/outlook.py); alerts read.
    state_full_at = models.DateTimeField(null=True)  # when its state will fill the driver's memory
    replay_records = models.BigIntegerField(null=True)  # what a crash now would replay
    preflight_fails = models.BooleanField(default=False)  # the one that its next start requires

    # Written by the database (models/query_rank.py).
    own_rank = rank_field()  # Rank by the columns above
    changing = changing_field()  # desired and actual differ, and nobody has to act
    rank: int  # no column: `selectors.supervision.query_groups` adds it to rows of lists

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["application", "identity"],
                name="query_identity_living",
                condition=Q(archived_at__isnull=True) & ~Q(identity=""),
            ),
            models.UniqueConstraint(
                fields=["name"], name="query_name_living", condition=Q(archived_at__isnull=True)
            ),
        ]
        indexes: ClassVar = [
            models.Index(  # the order of lists
                fields=["own_rank", "name"],
                name="query_listed",
                condition=Q(archived_at__isnull=True),
            ),
            models.Index(  # what should run: few of very many, and ticks ask for them alone
                fields=["application"],
                name="query_wanted",
                condition=Q(archived_at__isnull=True, desired=Desired.RUNNING),
            ),
            models.Index(  # holds all that counts are made of
                fields=["phase", "verdict", "own_rank", "changing"],
                name="query_counted",
                condition=Q(archived_at__isnull=True),
            ),
        ]
        ordering: ClassVar = ["name"]
        verbose_name_plural = "queries"

    def __str__(self) -> str:
        return self.name

    @property
    def discovered(self) -> bool:
        """Whether a script starts it, so that it is neither defined nor started by itself."""
        return bool(self.identity)


class QueryRevision(models.Model):
    """One immutable form of a query's definition."""

    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="revisions")
    number = models.IntegerField()
    kind = models.CharField(max_length=8)  # sql | python
    spec = models.JSONField()  # QuerySpec's JSON form
    author = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    #: Written by the database: a look at the brokers cannot read ten thousand definitions.
    names_kafka = models.GeneratedField(
        expression=Case(
            When(Contains(Cast("spec", models.TextField()), '"kafka"'), then=Value(True)),
            default=Value(False),
        ),
        output_field=models.BooleanField(),
        db_persist=True,
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["query", "number"], name="query_revision_number")
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["query"], name="revision_naming_kafka", condition=Q(names_kafka=True)
            )
        ]
        ordering: ClassVar = ["-number"]

    def __str__(self) -> str:
        return f"{self.query_id} r{self.number}"


class Checkpoint(models.Model):
    """A canonical location held by at most one query; archived queries free theirs."""

    query = models.ForeignKey(  # at most one with retired_at null (constraint below)
        Query, on_delete=models.PROTECT, related_name="checkpoints"
    )
    location = models.CharField(max_length=1024)  # canonical: "file:///…" without a last slash
    created_at = models.DateTimeField()
    built_from = models.ForeignKey(  # [R] rewind, reset
        "self", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    takeover_at = models.DateTimeField(null=True)  # [O] an author confirmed taking it over
    retired_at = models.DateTimeField(null=True)  # [R] rewind, reset; [O] archive
    # Batches that no run of ours made; its own task writes them (services/checkpoints).
    foreign_first = models.BigIntegerField(null=True)
    foreign_last = models.BigIntegerField(null=True)
    foreign_at = models.DateTimeField(null=True)  # when the last of them began
    topic_ids = models.JSONField(default=dict)  # its task: domain.kafka.topic_ids, by source

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["location"],
                name="checkpoint_location_held",
                condition=Q(retired_at__isnull=True),
            ),
            models.UniqueConstraint(
                fields=["query"], name="checkpoint_current", condition=Q(retired_at__isnull=True)
            ),
        ]
        indexes: ClassVar = [
            models.Index(  # few rows: somebody else has written into it
                fields=["foreign_at"],
                name="checkpoint_foreign",
                condition=Q(retired_at__isnull=True, foreign_last__isnull=False),
            )
        ]
        ordering: ClassVar = ["location"]

    def __str__(self) -> str:
        return self.location
