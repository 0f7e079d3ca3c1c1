"""Access tokens for CI: hashed by knox, with a name, an expiry and an address of their own."""

import uuid
from typing import ClassVar

from django.db import models
from knox.models import AbstractAuthToken


class AccessToken(AbstractAuthToken):  # type: ignore[misc]  # knox has no types
    """A token that speaks for a user until it expires or is revoked."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=80)  # what it is for: "deploy job"
    created_by = models.CharField(max_length=150, default="")  # user name of who made it

    class Meta:
        ordering: ClassVar = ["-created"]

    def __str__(self) -> str:
        return f"{self.name} of {self.user.get_username()}"
