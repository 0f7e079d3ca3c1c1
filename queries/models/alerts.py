"""Incidents and their notifications: channels, rules, maintenance windows, deliveries.

The writer of each column is marked: [I] services/alerts/incidents, [P] users by page or REST, [D]
services/alerts/deliveries, [T] services/alerts/figure_samples.
"""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q

from queries.channels import kinds
from queries.domain.alerts.forms import (
    DeliveryState,
    EntryKind,
    IncidentKind,
    IncidentState,
    NotificationStep,
    Severity,
)


class Incident(models.Model):
    """One problem with a query, an application, a host or Headgate itself, from start to end."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    kind = models.CharField(max_length=24, choices=[(k, k) for k in IncidentKind])  # [I]
    fingerprint = models.CharField(max_length=200)  # [I] identical for the same problem
    severity = models.CharField(max_length=8, choices=[(s, s) for s in Severity])  # [I]
    title = models.CharField(max_length=300)  # [I]
    detail = models.TextField(default="")  # [I] the evidence, with its numbers; no secrets
    query = models.ForeignKey(  # [I] null if several or none are affected
        "queries.Query", null=True, on_delete=models.CASCADE, related_name="incidents"
    )
    application = models.ForeignKey(  # [I] null if several or none are affected
        "queries.Application", null=True, on_delete=models.CASCADE, related_name="incidents"
    )
    host = models.CharField(max_length=255, default="")  # [I]
    affected = models.JSONField(default=list)  # [I] query names, if several are affected
    affected_count = models.IntegerField(default=1)  # [I] total; `affected` is bounded
    labels = models.JSONField(default=dict)  # [I] of its query and application, for routing
    failure_group = models.ForeignKey(  # [I]
        "queries.FailureGroup", null=True, on_delete=models.SET_NULL, related_name="incidents"
    )
    run = models.ForeignKey(  # [I] the newest one affected
        "queries.Run", null=True, on_delete=models.SET_NULL, related_name="+"
    )

    state = models.CharField(max_length=8, default=IncidentState.OPEN)  # [I] [P]
    opened_at = models.DateTimeField()  # [I] of this occurrence
    first_opened_at = models.DateTimeField()  # [I] of the first occurrence
    seen_at = models.DateTimeField()  # [I] when its cause was last observed
    quiet_since = models.DateTimeField(null=True)  # [I] when its cause ended; null while it lasts
    closed_at = models.DateTimeField(null=True)  # [I] [P]
    closed_by = models.CharField(max_length=150, default="")  # [P] "" if automatically
    occurrence = models.IntegerField(default=1)  # [I] rises when it is reopened

    acknowledged_by = models.CharField(max_length=150, default="")  # [P]
    acknowledged_at = models.DateTimeField(null=True)  # [P]
    acknowledged_until = models.DateTimeField(null=True)  # [P] null: until it closes
    snoozed_until = models.DateTimeField(null=True)  # [P] no notifications until then
    assignee = models.CharField(max_length=150, default="")  # [P]
    #: [D] when deliveries must be examined again; read by `ticks.watch_incidents`
    announce_after = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["fingerprint"],
                name="incident_open_fingerprint",
                condition=Q(state="OPEN"),
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["fingerprint", "-opened_at"], name="incident_fingerprint"),
            models.Index(fields=["state", "-opened_at"], name="incident_state"),
            models.Index(
                fields=["announce_after"],
                name="incident_announce_after",
                condition=Q(announce_after__isnull=False),
            ),
        ]
        ordering: ClassVar = ["-opened_at", "-pk"]

    def __str__(self) -> str:
        return self.title


class IncidentEntry(models.Model):
    """One line of an incident's history."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="entries")
    at = models.DateTimeField()
    kind = models.CharField(max_length=12, choices=[(k, k) for k in EntryKind])
    actor = models.CharField(max_length=150, default="")  # "" for Headgate itself
    text = models.TextField(default="")

    class Meta:
        ordering: ClassVar = ["at", "pk"]

    def __str__(self) -> str:
        return f"{self.kind} {self.text}"


class Channel(models.Model):
    """A notification channel, set up by admins; its address is a reference to a secret. [P]"""

    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField(max_length=10, choices=kinds.choices)
    #: Addresses and keys as references, `file:NAME` or `env:NAME`, and plain options by name.
    settings = models.JSONField(default=dict)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    last_sent_at = models.DateTimeField(null=True)  # [D]
    failing_since = models.DateTimeField(null=True)  # [D]
    last_error = models.TextField(default="")  # [D] without addresses and secrets

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class AlertRule(models.Model):
    """Which incidents are sent to which channels, and the reminders. [P]"""

    name = models.CharField(max_length=80, unique=True)
    position = models.IntegerField(default=0)  # sort order on pages
    enabled = models.BooleanField(default=True)
    #: {"labels": {...}, "kinds": [...], "severities": [...], "applications": [...]}; {} is all
    selector = models.JSONField(default=dict)
    channels = models.ManyToManyField(Channel, related_name="rules")
    #: {"zone": "Europe/Berlin", "from": "22:00", "until": "07:00", "days": [...]}; {} is none
    quiet_hours = models.JSONField(default=dict)
    escalate_after_minutes = models.IntegerField(null=True)  # without acknowledgement
    escalate_to = models.ManyToManyField(Channel, related_name="escalations")
    remind_every_hours = models.IntegerField(null=True)
    #: Limits on the figures of the queries that the selector's labels and applications match.
    thresholds = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering: ClassVar = ["position", "name"]

    def __str__(self) -> str:
        return self.name


class Maintenance(models.Model):
    """A window in which matching problems do not open incidents. [P]"""

    name = models.CharField(max_length=80)
    selector = models.JSONField(default=dict)  # like an AlertRule's
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering: ClassVar = ["-starts_at", "-pk"]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One message about one incident to one channel: the outbox. [D]"""

    incident = models.ForeignKey(
        Incident, null=True, on_delete=models.CASCADE, related_name="deliveries"
    )  # null for a test of the channel
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    occurrence = models.IntegerField()
    step = models.CharField(max_length=10, choices=[(s, s) for s in NotificationStep])
    repeat = models.IntegerField(default=0)  # reminder number within the step
    state = models.CharField(
        max_length=8, default=DeliveryState.WAITING, choices=[(s, s) for s in DeliveryState]
    )
    message = models.JSONField(default=dict)  # as sent; no address, no secret
    created_at = models.DateTimeField()
    #: When the next attempt is due; read by `ticks.send_alerts`. Null if there is none.
    attempt_after = models.DateTimeField(null=True)
    attempts = models.IntegerField(default=0)
    #: A worker is sending it until then; if it dies, another sends it, marked as a repeat.
    leased_until = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    last_error = models.TextField(default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["incident", "occurrence", "step", "repeat", "channel"],
                name="delivery_once",
            )
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["attempt_after"],
                name="delivery_attempt_after",
                condition=Q(attempt_after__isnull=False),
            )
        ]
        ordering: ClassVar = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.step} to {self.channel_id}"


class FigureSample(models.Model):
    """A running query's figures in one minute, which no other table keeps. [T]

    Written by services/alerts/figure_samples. A minute without a row is one in which the query did
    not run or was not sampled.
    """

    query = models.ForeignKey("queries.Query", on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField(db_index=True)  # start of the minute; indexed for retention
    records = models.BigIntegerField(null=True)  # behind; null: unknown
    seconds = models.FloatField(null=True)  # behind; null: unknown
    files = models.BigIntegerField(null=True)  # of tables, behind; null: unknown
    bytes = models.BigIntegerField(null=True)  # of these files; null: unknown
    late = models.BigIntegerField()  # rows dropped as late since midnight UTC

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["query", "at"], name="figure_sample_minute")
        ]

    def __str__(self) -> str:
        return f"figures of query {self.query_id} at {self.at}"
