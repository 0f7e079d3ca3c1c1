"""The roles granted by an identity provider's groups."""

from typing import ClassVar

from django.db import models


class GroupRole(models.Model):
    """A group in the identity provider, and the role that its members get. [P]"""

    group = models.CharField(max_length=255, unique=True)  # exactly as the provider writes it
    role = models.CharField(max_length=20)  # one of queries.roles.Role
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)  # user name

    class Meta:
        ordering: ClassVar = ["group"]

    def __str__(self) -> str:
        return f"{self.group}: {self.role}"
