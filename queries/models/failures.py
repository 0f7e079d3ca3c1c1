"""Failures, and their groups by fingerprint."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from headgate_ground.masking import TABLE, mask_text
from queries.domain.states import GroupStatus


class FailureGroup(models.Model):
    """Failures of one query (or one application's drivers) with the same fingerprint."""

    query = models.ForeignKey(  # null: the application's own
        "queries.Query", null=True, on_delete=models.CASCADE, related_name="failure_groups"
    )
    application = models.ForeignKey(
        "queries.Application", on_delete=models.CASCADE, related_name="failure_groups"
    )
    fingerprint = models.CharField(max_length=64)  # unique per (application, query)
    title = models.CharField(max_length=300)
    status = models.CharField(max_length=8, default=GroupStatus.OPEN)  # [O]; [R] reopens
    count = models.IntegerField(default=0)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)  # [O]
    resolved_by = models.CharField(max_length=150, default="")  # [O]
    regressed_at = models.DateTimeField(null=True)  # [R] when a resolved group failed again

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["query", "fingerprint"],
                name="failure_group_of_query",
                condition=Q(query__isnull=False),
            ),
            models.UniqueConstraint(
                fields=["application", "fingerprint"],
                name="failure_group_of_application",
                condition=Q(query__isnull=True),
            ),
        ]
        ordering: ClassVar = ["-last_seen"]

    def __str__(self) -> str:
        return self.title


class Failure(models.Model):
    """One failure of a run, or of a driver if `run` is null. [R]"""

    driver = models.ForeignKey("queries.Driver", on_delete=models.CASCADE, related_name="failures")
    run = models.ForeignKey(
        "queries.Run", null=True, on_delete=models.CASCADE, related_name="failures"
    )
    group = models.ForeignKey(FailureGroup, on_delete=models.CASCADE, related_name="failures")
    at = models.DateTimeField(db_index=True)
    category = models.CharField(max_length=40)  # failures.Category
    policy = models.CharField(max_length=8)
    error_class = models.CharField(max_length=200, default="")
    error_type = models.CharField(max_length=200, default="")
    root_cause = models.TextField(default="")
    message = models.TextField(default="")  # complete text, bounded
    batch = models.BigIntegerField(null=True)
    offsets = models.JSONField(default=dict)
    log_tail = models.TextField(default="")
    #: The version of the table of secrets with which the texts above were masked when stored;
    #: "" if by an earlier release.
    masked_with = models.CharField(max_length=8, default="", db_default="")
    conf = models.JSONField(default=dict)  # the application's, masked
    last_progress = models.JSONField(null=True)
    attempt = models.IntegerField(default=1)  # consecutive failures, including this one
    next_attempt_at = models.DateTimeField(null=True)

    class Meta:
        ordering: ClassVar = ["-at", "-pk"]

    def __str__(self) -> str:
        return self.error_class or self.error_type or "failure"

    def shown(self, text: str) -> str:
        """Return one of its texts, masked again if the table of secrets has changed since."""
        return text if self.masked_with == TABLE else mask_text(text)
