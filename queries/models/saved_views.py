"""Users' saved views of the query list."""

from typing import ClassVar

from django.conf import settings
from django.db import models


class SavedView(models.Model):
    """A user's filters and grouping of the query list, under a name. [P]"""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views"
    )
    name = models.CharField(max_length=80)
    address = models.CharField(max_length=1000)  # query string of the list's address
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "name"], name="saved_view_name")
        ]
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name
