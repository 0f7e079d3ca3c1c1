"""Views of the list of queries that people keep for themselves."""

from typing import ClassVar

from django.conf import settings
from django.db import models


class SavedView(models.Model):
    """One person's filters and grouping of the list of queries, under a name. [P]"""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views"
    )
    name = models.CharField(max_length=80)
    address = models.CharField(max_length=1000)  # the query string of the list's address
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "name"], name="saved_view_name")
        ]
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name
