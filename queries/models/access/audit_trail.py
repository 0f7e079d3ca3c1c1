"""The audit log: actions by users and with tokens. Rows are added and never changed.

Database triggers enforce that (`audit_guard`), and a chain of MACs reveals whether someone has
dropped the triggers (`queries.domain.access.chain`).
"""

import uuid
from typing import Any, ClassVar

from django.db import models

from queries.domain.access.acts import ACT_WORDS, Act
from queries.domain.access.chain import START, Link, Mark

#: Details that are shown without their names, and details that are omitted.
_SPEAK_FOR_THEMSELVES = frozenset({"verb", "what", "did", "of", "detail", "browser"})
_IDS = frozenset({"operation", "token_uuid"})


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


class AuditEntry(models.Model):
    """One action. Its entry is inserted together with it, and numbered after the commit."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    number = models.BigIntegerField(null=True, unique=True)  # 1, 2, 3…; None: not chained yet
    at = models.DateTimeField(db_index=True)
    kind = models.CharField(max_length=20)  # Act
    subject = models.CharField(max_length=255, default="")  # name of the object acted on
    actor = models.CharField(max_length=150, default="")  # user name; "" if unknown
    token = models.CharField(max_length=80, default="")  # its name; "" without a token
    token_id = models.CharField(max_length=36, default="")  # the token's UUID
    address = models.CharField(max_length=45, default="")  # of the client; "" on the command line
    details = models.JSONField(default=dict)  # texts, integers, flags and lists of them
    key = models.CharField(max_length=8)  # name of the key that sealed it
    seal = models.CharField(max_length=64)  # covers `content`
    mac = models.CharField(max_length=64, default="")  # covers number, seal and the previous MAC

    class Meta:
        ordering: ClassVar = ["-at", "-pk"]
        indexes: ClassVar = [  # used by `services.access.rate_limits` and the page's filter
            models.Index(fields=["actor", "kind", "at"], name="audit_actor"),
        ]

    def __str__(self) -> str:
        return f"{self.actor or 'somebody'} {self.words} {self.subject}".strip()

    @property
    def words(self) -> str:
        """Return the action as shown on pages."""
        return ACT_WORDS[Act(self.kind)]

    @property
    def details_line(self) -> str:
        """Return the details as one line, without the operation's and the token's IDs."""
        details = {name: value for name, value in self.details.items() if value not in (None, "")}
        before, after = details.pop("before", ""), details.pop("after", "")
        moved = [f"{before} → {after}" if before and after else before or after]
        parts = [
            _listed(value) if name in _SPEAK_FOR_THEMSELVES else f"{name} {_listed(value)}"
            for name, value in details.items()
            if name not in _IDS
        ]
        return ", ".join([part for part in moved if part] + parts)

    def content(self) -> dict[str, Any]:
        """Return what the seal covers."""
        return {
            "uuid": str(self.uuid),
            "at": self.at.isoformat(timespec="microseconds"),
            "kind": str(self.kind),
            "subject": self.subject,
            "actor": self.actor,
            "token": self.token,
            "token_id": self.token_id,
            "address": self.address,
            "details": self.details,
            "key": self.key,
        }

    def link(self) -> Link:
        """Return the entry as a link of the chain; it must have its number."""
        assert self.number is not None
        return Link(self.number, self.key, self.content(), self.seal, self.mac)


class AuditHead(models.Model):
    """The single row with the chain's progress; the process that chains holds its lock."""

    number = models.BigIntegerField(default=0)
    mac = models.CharField(max_length=64, default=START)

    def __str__(self) -> str:
        return f"entry {self.number}"

    def mark(self) -> Mark:
        """Return the position in the chain."""
        return Mark(self.number, self.mac)


class AuditAnchor(models.Model):
    """Where the log begins after a removal: the number and the MAC of the last removed entry."""

    number = models.BigIntegerField(unique=True)
    mac = models.CharField(max_length=64)
    at = models.DateTimeField()  # of the pruning
    key = models.CharField(max_length=8)
    seal = models.CharField(max_length=64)  # only the key's holder can release entries

    def __str__(self) -> str:
        return f"after entry {self.number}"

    def mark(self) -> Mark:
        """Return the position in the chain."""
        return Mark(self.number, self.mac)

    def content(self) -> dict[str, Any]:
        """Return what the seal covers."""
        return {
            "anchor": self.number,
            "mac": self.mac,
            "at": self.at.isoformat(timespec="microseconds"),
            "key": self.key,
        }
