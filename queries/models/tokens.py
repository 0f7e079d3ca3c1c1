"""Access tokens for CI: hashed by knox, with a name, an expiry, and their own limits.

Also recent wrong tokens by IP address, counted across all web processes.
"""

import uuid
from enum import StrEnum
from typing import ClassVar

from django.db import models
from knox.models import AbstractAuthToken


class Scope(StrEnum):
    """A token's maximum rights; its user's role limits them further."""

    READ = "read"
    OPERATE = "operate"
    AUTHOR = "author"
    ADMIN = "admin"


class AccessToken(AbstractAuthToken):  # type: ignore[misc]  # knox has no types
    """A token that acts for a user, within its limits, until it expires or is revoked."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=80)  # its purpose: "deploy job"
    created_by = models.CharField(max_length=150, default="")  # user name of its creator
    scope = models.CharField(max_length=8, default=Scope.READ, choices=[(s, s) for s in Scope])
    #: If set, the token acts on this team's applications only; null: on its user's. A token is
    #: deleted with its team, because without the limit it would grant access to more.
    team = models.ForeignKey("queries.Team", null=True, on_delete=models.CASCADE, related_name="+")
    #: Whether it is restricted to `applications`. This is a separate column, because a list that
    #: has become empty must not mean "all".
    is_listed = models.BooleanField(default=False)
    applications = models.ManyToManyField("queries.Application", related_name="+")
    last_used_at = models.DateTimeField(null=True)  # to the minute

    class Meta:
        ordering: ClassVar = ["-created"]

    def __str__(self) -> str:
        return f"{self.name} of {self.user.get_username()}"


class TokenGuess(models.Model):
    """One wrong token from one IP address; repeating it does not count as another guess."""

    address = models.CharField(max_length=45)
    name = models.CharField(max_length=16)  # a keyed digest: the text may be a password
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["address", "name"], name="one_row_a_guess")
        ]

    def __str__(self) -> str:
        return f"a wrong token from {self.address}"
