"""Objects that come from files: their owner, their file, and its content."""

from typing import ClassVar

from django.db import models
from django.db.models import Q


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
        """Return where its file is, for display; "" if unknown."""
        at = f" at {self.commit[:12]}" if self.commit else ""
        return f"{self.path}{' in ' if self.path and self.repository else ''}{self.repository}{at}"
