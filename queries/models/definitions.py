"""Definitions of queries with their revisions, and the owners of objects that come from files."""

from enum import IntEnum
from typing import ClassVar

from django.db import models
from django.db.models import (
    BooleanField,
    Case,
    F,
    GeneratedField,
    PositiveSmallIntegerField,
    Q,
    Value,
    When,
)
from django.db.models.functions import Cast
from django.db.models.lookups import Contains

from queries.domain.states import (
    HANGING_REASONS,
    JUDGED_PHASES,
    STOPPED_PHASES,
    TROUBLED_PHASES,
    TROUBLED_VERDICTS,
    Desired,
    Phase,
    Reason,
    RestartBlock,
    StopMode,
)
from queries.domain.validation.skipped import Skip, from_json
from queries.models.history import BecauseField


class Rank(IntEnum):
    """Attention order of a list."""

    AT_RISK = 0  # unread records are about to be deleted
    TROUBLED = 1
    CALM = 2


def _is(condition: Q) -> Case:
    return Case(When(condition, then=Value(True)), default=Value(False))


_TROUBLED = (
    Q(phase__in=sorted(TROUBLED_PHASES))
    | Q(phase__in=tuple(sorted(JUDGED_PHASES)), verdict__in=sorted(TROUBLED_VERDICTS))
    | Q(phase_reason__in=sorted(HANGING_REASONS))
    | Q(desired=Desired.RUNNING, source_unreachable_since__isnull=False)  # it is cut off
)
#: Desired and actual state differ, and no user action is needed.
_CHANGING = Q(desired=Desired.STOPPED) & ~Q(phase__in=sorted(STOPPED_PHASES)) | ~Q(
    desired=Desired.STOPPED
) & ~Q(phase=Phase.RUNNING) & (
    Q(restart_block=RestartBlock.NONE) | ~Q(generation=F("seen_generation"))
)


def rank_field() -> GeneratedField:
    """Return the generated column with the row's `Rank`."""
    return GeneratedField(
        expression=Case(
            When(~Q(risk=""), then=Value(Rank.AT_RISK.value)),
            When(_TROUBLED, then=Value(Rank.TROUBLED.value)),
            default=Value(Rank.CALM.value),
        ),
        output_field=PositiveSmallIntegerField(),
        db_persist=True,
    )


def changing_field() -> GeneratedField:
    """Return the generated column: desired and actual differ, and no user action is needed."""
    return GeneratedField(expression=_is(_CHANGING), output_field=BooleanField(), db_persist=True)


class Query(models.Model):
    """One streaming query, with its desired and its observed state."""

    #: [C] unique among unarchived ones, immutable; [R] `application/query` for a found one
    name = models.CharField(max_length=160)
    application = models.ForeignKey(  # [C]
        "queries.Application", on_delete=models.PROTECT, related_name="queries"
    )
    labels = models.JSONField(default=dict, blank=True)  # [C] like an application's
    #: [C] the newest revision's, so that alerts read no definition; null if there are none
    thresholds = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField()  # [C]
    archived_at = models.DateTimeField(null=True)  # [O]

    #: [R] identity of a query started by a script; "" for a defined query
    identity = models.CharField(max_length=1200, default="", blank=True)
    asked = models.CharField(max_length=1024, default="", blank=True)  # [R] the script's checkpoint
    temporary = models.CharField(max_length=200, default="", blank=True)  # [R] why it is not kept
    gone_at = models.DateTimeField(
        null=True
    )  # [O] dropped by its script; [R] null while it starts it

    desired = models.CharField(  # [O]; [R] sets STOPPED when a once/availableNow run completes
        max_length=8, default=Desired.STOPPED, choices=[(d, d) for d in Desired]
    )
    stop_mode = models.CharField(max_length=8, default=StopMode.GRACEFUL)  # [O]
    stop_deadline = models.DateTimeField(null=True)  # [O] then a graceful stop becomes immediate
    generation = models.BigIntegerField(default=0)  # [O] rises with each verb
    #: [O] values given at its start, kept by every automatic restart; null: the defaults
    params = models.JSONField(null=True)
    target_revision = models.ForeignKey(  # [O] pinned by start and restart
        "queries.QueryRevision", null=True, on_delete=models.PROTECT, related_name="+"
    )

    phase = models.CharField(max_length=16, default=Phase.STOPPED, db_index=True)  # [R]
    phase_reason = models.CharField(max_length=60, default=Reason.NEVER_STARTED)  # [R] Reason
    phase_detail = BecauseField()  # [R] current activity, in addition to the reason
    phase_since = models.DateTimeField(null=True)  # [R]
    reached_generation = models.BigIntegerField(default=0)  # [R]
    seen_generation = models.BigIntegerField(default=0)  # [R] an unseen one clears the counters
    failures = models.IntegerField(default=0)  # [R] consecutive failures
    next_attempt_at = models.DateTimeField(null=True)  # [R]
    restart_block = models.CharField(
        max_length=8, default="", choices=[(h, h) for h in RestartBlock]
    )  # [R]
    # Written only by the task that records verdicts (services/supervision/records.py).
    verdict = models.CharField(max_length=16, default="", blank=True)  # of its health; "": none
    verdict_since = models.DateTimeField(null=True)  # since when it holds
    # Written only by the lag task (docs/decisions: who writes lag and risk); reconcile reads.
    risk = models.TextField(default="")  # what will be lost and when, "" if nothing
    risk_at = models.DateTimeField(null=True)  # when the first loss occurs; in the past: occurred
    source_reachable = models.BooleanField(null=True)  # null: unknown
    source_unreachable_since = models.DateTimeField(null=True)
    # Written only by the forecast task (services/alerts/figures.py); alerts read.
    state_full_at = models.DateTimeField(null=True)  # when its state will fill the driver's memory
    replay_records = models.BigIntegerField(null=True)  # what a crash now would replay
    preflight_fails = models.BooleanField(default=False)  # a preflight its next start requires

    # Written by the database (models/definitions.py).
    own_rank = rank_field()  # Rank from the columns above
    changing = changing_field()  # desired and actual differ, no action needed
    rank: int  # not a column: `selectors.supervision.query_filters` adds it to rows of lists

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
            models.Index(  # sort order of lists
                fields=["own_rank", "name"],
                name="query_listed",
                condition=Q(archived_at__isnull=True),
            ),
            models.Index(  # queries that should run: a small part, which ticks select
                fields=["application"],
                name="query_wanted",
                condition=Q(archived_at__isnull=True, desired=Desired.RUNNING),
            ),
            models.Index(  # covers everything that counts need
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
        """Whether a script starts it, so that it is not defined or started individually."""
        return bool(self.identity)


class QueryRevision(models.Model):
    """One immutable version of a query's definition."""

    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="revisions")
    number = models.IntegerField()
    kind = models.CharField(max_length=8)  # sql or python
    spec = models.JSONField()  # QuerySpec's JSON form
    author = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    # Spark's parser and analyzer results; written later if they did not answer.
    unchecked = models.JSONField(default=list)  # [R] `domain.validation.skipped`
    unasked = models.BooleanField(default=False)  # [R] its SQL will be checked again
    refusal = models.TextField(default="")  # [R] why Spark rejects a text saved unchecked
    state = models.JSONField(null=True)  # [R] what its state depends on; null if unknown
    state_by = models.CharField(max_length=20, default="")  # Spark version that reported it
    #: [R] the relations in its SQL (`domain.definitions.sql_reads`); null until they are read
    reads = models.JSONField(null=True)
    # [O] a checkpoint on which a user started it although it changes the state
    accepted_on = models.ForeignKey(
        "queries.Checkpoint", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    accepted_by = models.CharField(max_length=150, default="")
    #: Written by the database, because a pass over the brokers cannot read ten thousand
    #: definitions.
    names_kafka = models.GeneratedField(
        expression=Case(
            When(Contains(Cast("spec", models.TextField()), '"kafka"'), then=Value(True)),
            default=Value(False),
        ),
        output_field=models.BooleanField(),
        db_persist=True,
    )

    #: Likewise for tables, whose logs are read.
    names_table = models.GeneratedField(
        expression=Case(
            When(
                Q(Contains(Cast("spec", models.TextField()), '"delta"'))
                | Q(Contains(Cast("spec", models.TextField()), '"iceberg"')),
                then=Value(True),
            ),
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
            ),
            models.Index(
                fields=["query"], name="revision_naming_table", condition=Q(names_table=True)
            ),
            models.Index(  # few: saved, but rejected by Spark
                fields=["query"], name="revision_refused", condition=~Q(refusal="")
            ),
            models.Index(  # few: SQL that Spark's parser has not read yet
                fields=["query"],
                name="revision_sql_unread",
                condition=Q(kind="sql", reads__isnull=True),
            ),
            models.Index(  # few: to be checked again by Spark's parser
                fields=["query"], name="revision_sql_unchecked", condition=Q(unasked=True)
            ),
        ]
        ordering: ClassVar = ["-number"]

    def __str__(self) -> str:
        return f"{self.query_id} r{self.number}"

    @property
    def skipped(self) -> list[Skip]:
        """Return the checks that were skipped when it was saved."""
        return from_json(self.unchecked)


class Checkpoint(models.Model):
    """A canonical location held by at most one query; archived queries release theirs."""

    query = models.ForeignKey(  # at most one with retired_at null (constraint below)
        Query, on_delete=models.PROTECT, related_name="checkpoints"
    )
    location = models.CharField(max_length=1024)  # canonical: "file:///…" without a trailing slash
    #: [C] chosen by Headgate: [R] puts it below the home of the host that first runs the query
    by_default = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    built_from = models.ForeignKey(  # [R] rewind, reset
        "self", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    takeover_at = models.DateTimeField(null=True)  # [O] an author confirmed the takeover
    retired_at = models.DateTimeField(null=True)  # [R] rewind, reset; [O] archive
    # Batches not written by our runs; recorded by a task of its own (services/checkpoints).
    foreign_first = models.BigIntegerField(null=True)
    foreign_last = models.BigIntegerField(null=True)
    foreign_at = models.DateTimeField(null=True)  # when the last of them started
    topic_ids = models.JSONField(default=dict)  # by its task: domain.kafka.topic_ids, by source

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
            models.Index(  # few rows: someone else has written to it
                fields=["foreign_at"],
                name="checkpoint_foreign",
                condition=Q(retired_at__isnull=True, foreign_last__isnull=False),
            )
        ]
        ordering: ClassVar = ["location"]

    def __str__(self) -> str:
        return self.location


class Managed(models.Model):
    """The owner of one existing object, and the object's state in its file when it was applied."""

    owner = models.CharField(max_length=80, db_index=True)
    repository = models.CharField(max_length=500, default="", blank=True)
    commit = models.CharField(max_length=64, default="", blank=True)  # full hash
    path = models.CharField(max_length=500, default="", blank=True)  # of its file
    # Exactly one of them (constraint below).
    application = models.OneToOneField(
        "queries.Application", null=True, on_delete=models.CASCADE, related_name="managed"
    )
    query = models.OneToOneField(
        "queries.Query", null=True, on_delete=models.CASCADE, related_name="managed"
    )
    rule = models.OneToOneField(
        "queries.AlertRule", null=True, on_delete=models.CASCADE, related_name="managed"
    )
    applied = models.JSONField()  # selectors.manifests.states: drift is measured against it
    applied_at = models.DateTimeField()
    applied_by = models.CharField(max_length=150)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                name="managed_one_object",
                condition=(
                    Q(application__isnull=False, query__isnull=True, rule__isnull=True)
                    | Q(application__isnull=True, query__isnull=False, rule__isnull=True)
                    | Q(application__isnull=True, query__isnull=True, rule__isnull=False)
                ),
            )
        ]
        verbose_name_plural = "managed objects"

    def __str__(self) -> str:
        return f"{self.query or self.application or self.rule} of {self.owner}"

    @property
    def source(self) -> str:
        """Return its file's location, for display; "" if unknown."""
        at = f" at {self.commit[:12]}" if self.commit else ""
        return f"{self.path}{' in ' if self.path and self.repository else ''}{self.repository}{at}"
