"""Grants by admins: secrets, allowed paths of applications, and git hosts for code.

A row is never changed: a changed grant is revoked and granted again, so the rows are also their own
history. Holders are stored by name, not linked: they can get grants before they are created, and
lose them when they are deleted. [P]
"""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from queries.domain.secrets import HolderKind


class RevocableGrant(models.Model):
    """A grant that can be revoked."""

    given_at = models.DateTimeField()
    given_by = models.CharField(max_length=150)
    taken_at = models.DateTimeField(null=True)
    taken_by = models.CharField(max_length=150, default="")

    class Meta:
        abstract = True


class SecretBinding(RevocableGrant):
    """A secret that an application or a channel can use, and the hosts to which it can be sent."""

    secret = models.CharField(max_length=200)  # "env:NAME" or "file:NAME", never its value
    holder_kind = models.CharField(max_length=11, choices=[(k, k) for k in HolderKind])
    holder = models.CharField(max_length=80)  # its name
    hosts = models.JSONField(default=list)  # patterns (domain/secrets/hosts)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["secret", "holder_kind", "holder"],
                name="secret_binding_once",
                condition=Q(taken_at__isnull=True),
            )
        ]
        indexes: ClassVar = [models.Index(fields=["holder_kind", "holder"], name="secret_holder")]
        ordering: ClassVar = ["secret", "holder_kind", "holder", "-given_at"]

    def __str__(self) -> str:
        return f"{self.secret} of {self.holder_kind} {self.holder}"


class GivenRoot(RevocableGrant):
    """A folder or URL prefix in which one application is allowed to store data."""

    application = models.CharField(max_length=80)  # its name
    root = models.CharField(max_length=1000)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["application", "root"],
                name="given_root_once",
                condition=Q(taken_at__isnull=True),
            )
        ]
        ordering: ClassVar = ["application", "root", "-given_at"]

    def __str__(self) -> str:
        return f"{self.root} of {self.application}"


class CodeHost(RevocableGrant):
    """A git host from which definitions can take code."""

    host = models.CharField(max_length=255)  # "host", "host:port" or "ssh://host"

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["host"], name="code_host_once", condition=Q(taken_at__isnull=True)
            )
        ]
        ordering: ClassVar = ["host", "-given_at"]

    def __str__(self) -> str:
        return self.host
