"""Which role the groups of an identity provider give."""

from typing import ClassVar

from django.db import models


class GroupRole(models.Model):
    """A group of the identity provider, and the role of who is in it. [P]"""

    group = models.CharField(max_length=255, unique=True)  # as the provider writes it, exactly
    role = models.CharField(max_length=20)  # one of queries.roles.Role
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)  # user name

    class Meta:
        ordering: ClassVar = ["group"]

    def __str__(self) -> str:
        return f"{self.group}: {self.role}"
