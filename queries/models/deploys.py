"""Deploys and their changes: the report, which is never deleted.

The writer of each column is marked: [O] the request, [D] services/deploys, which advances a deploy
by compare-and-set of its version.
"""

import uuid
from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q

from queries.domain.deploys.request import (
    ChangeKind,
    ChangeState,
    DeployStage,
    DeployState,
    OnFailure,
)
from queries.domain.reasons import Because
from queries.domain.states import Desired
from queries.models.history import BecauseField


class Deploy(models.Model):
    """A set of changes being deployed: its requester, its progress, its result."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    state = models.CharField(  # [D]
        max_length=12,
        default=DeployState.PENDING,
        choices=[(value, value) for value in DeployState],
        db_index=True,
    )
    reason = BecauseField()  # [D] why it is not, or was not, good
    actor = models.CharField(max_length=150)  # [O]
    asker = models.JSONField(default=dict)  # [O] {address, token, token_id}: limits each wave
    owner = models.CharField(max_length=80, default="")  # [O] of the set
    source = models.JSONField(default=dict)  # [O] {repository, commit}
    asked = models.JSONField(default=dict)  # [O] the set, in the form for apply
    #: [O] [{application, name, team}]: what the set concerns; application null: does not exist yet
    touches = models.JSONField(default=list)
    diff = models.JSONField(default=list)  # [O] the plan's diff per object; masked
    canary = models.JSONField(default=list)  # [O] names
    size = models.IntegerField(default=1)  # [O] units per wave
    good = models.JSONField(default=dict)  # [O] domain.deploys.forms.Good
    on_failure = models.CharField(  # [O]
        max_length=8, default=OnFailure.ROLLBACK, choices=[(value, value) for value in OnFailure]
    )
    preflight = models.BooleanField(default=False)  # [O] required for every new definition
    created_at = models.DateTimeField(db_index=True)  # [O]
    ended_at = models.DateTimeField(null=True)  # [D]
    cancelled_by = models.CharField(max_length=150, default="")  # [O] who requested cancellation

    stage = models.CharField(
        max_length=12, default="", choices=[(s, s) for s in DeployStage]
    )  # [D]
    wave = models.IntegerField(default=0)  # [D] from 1; 0 outside a wave
    waves = models.IntegerField(default=0)  # [O] number of waves
    #: [O] names of queries of which not all reads and writes are known: the order of the waves may
    #: be incomplete
    unsure = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))
    stage_since = models.DateTimeField(null=True)  # [D]
    #: [D] [from, to] in ISO 8601 for each started wave; to is null while it lasts
    spans = models.JSONField(default=list)
    #: [D] UUIDs of the operations that stop, and then delete, objects at the end of the deploy
    follows = models.JSONField(default=list)
    version = models.BigIntegerField(default=0)  # [D] rises with every step

    class Meta:
        indexes: ClassVar = [
            models.Index(  # few of very many: used by `ticks.advance_deploys`
                fields=["created_at"], name="deploy_open", condition=Q(ended_at__isnull=True)
            )
        ]
        ordering: ClassVar = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return f"deploy {self.uuid}"


class DeployChange(models.Model):
    """One query or application of a deploy: revisions from and to, and the evidence."""

    deploy = models.ForeignKey(Deploy, on_delete=models.CASCADE, related_name="changes")
    wave = models.IntegerField()  # [O] from 1
    kind = models.CharField(max_length=12, choices=[(value, value) for value in ChangeKind])  # [O]
    name = models.CharField(max_length=160)  # [O] same length as a query's
    application = models.ForeignKey(  # [O] [D] null: does not exist yet
        "queries.Application", null=True, on_delete=models.CASCADE, related_name="+"
    )
    query = models.ForeignKey(  # [O] [D] null: an application's, or does not exist yet
        "queries.Query", null=True, on_delete=models.CASCADE, related_name="+"
    )
    with_driver = models.BooleanField(default=False)  # [O] its application's driver is replaced
    is_written = models.BooleanField(default=True)  # [O] its definition changes
    runs = models.BooleanField(default=True)  # [O] it should run, and is judged
    ran = models.BooleanField(default=False)  # [D] it ran before its wave was written
    from_revision = models.IntegerField(null=True)  # [O] null: it is new
    to_revision = models.IntegerField(null=True)  # [D] null: not written yet
    back_revision = models.IntegerField(null=True)  # [D] the restored former definition
    spec = models.JSONField(default=dict)  # [O] tried by a preflight; empty: none
    #: [O] {newest: revision, desired: former desired state, pools: of an application}
    former = models.JSONField(default=dict)
    state = models.CharField(  # [D]
        max_length=12,
        default=ChangeState.PENDING,
        choices=[(value, value) for value in ChangeState],
    )
    reason = BecauseField()  # [D] what it waits for, or why it is bad
    evidence = models.JSONField(default=dict)  # [D] what was observed
    #: [D] stage -> UUID of the operation requested in it
    operations = models.JSONField(default=dict)
    snapshot = models.ForeignKey(  # [D]
        "queries.Snapshot", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    restarted_at = models.DateTimeField(null=True)  # [D] start of the judged period
    #: [D] the last epoch before the restart: its drivers and runs have higher ones; null: the
    #: deploy did not restart it
    restart_epoch = models.BigIntegerField(null=True)
    first_batch = models.BigIntegerField(null=True)  # [D] committed by the new definition
    over = models.BooleanField(default=False)  # [D] its deploy has ended

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(  # two deploys never change one object at a time
                fields=["kind", "name"], name="deploy_change_open", condition=Q(over=False)
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["query", "-id"], name="deploy_change_query"),
        ]
        ordering: ClassVar = ["wave", "kind", "name"]

    def __str__(self) -> str:
        return f"{self.name} of {self.deploy_id}"

    @property
    def was_to_run(self) -> bool:
        """Return whether it was supposed to run before the deploy; if not, a rollback stops it."""
        if "desired" in self.former:
            return bool(self.former["desired"] == Desired.RUNNING)
        return self.from_revision is not None  # an application has no desired state

    @property
    def judged_by(self) -> str:
        """Return the criterion that was checked, for display; "" before the first check."""
        return Because.of(self.evidence.get("judged_by", {})).text

    @property
    def proven_at(self) -> datetime | None:
        """Return when it was confirmed to run on the definition of the deploy; None if never."""
        timestamp = self.evidence.get("proven_at")
        return datetime.fromisoformat(timestamp) if timestamp else None

    @property
    def tried_at(self) -> datetime | None:
        """Return when it was restarted on the definition of the deploy; None if never.

        After a rollback, `restarted_at` is the time of the rollback's restart.
        """
        timestamp = self.evidence.get("restarted_at")
        return datetime.fromisoformat(timestamp) if timestamp else self.restarted_at
