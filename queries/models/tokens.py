"""Access tokens for CI: hashed by knox, with a name, an expiry, and limits of their own."""

import uuid
from enum import StrEnum
from typing import ClassVar

from django.db import models
from knox.models import AbstractAuthToken


class Scope(StrEnum):
    """What a token may do at most; its user's role limits it further."""

    READ = "read"
    OPERATE = "operate"
    AUTHOR = "author"
    ADMIN = "admin"


class AccessToken(AbstractAuthToken):  # type: ignore[misc]  # knox has no types
    """A token that speaks for a user, within its limits, until it expires or is revoked."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=80)  # what it is for: "deploy job"
    created_by = models.CharField(max_length=150, default="")  # user name of who made it
    scope = models.CharField(max_length=8, default=Scope.READ, choices=[(s, s) for s in Scope])
    #: It acts on this team's applications alone; null: on those of its user. A token does not
    #: outlive its team, for without one it would reach further.
    team = models.ForeignKey("queries.Team", null=True, on_delete=models.CASCADE, related_name="+")
    #: Whether it acts on `applications` alone. A column of its own: a list that has become empty
    #: must not mean "all".
    is_listed = models.BooleanField(default=False)
    applications = models.ManyToManyField("queries.Application", related_name="+")
    last_used_at = models.DateTimeField(null=True)  # to the minute

    class Meta:
        ordering: ClassVar = ["-created"]

    def __str__(self) -> str:
        return f"{self.name} of {self.user.get_username()}"
