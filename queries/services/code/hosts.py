"""Manage the hosts from which definitions can take code; for admins only, audited."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from queries.domain.access.acts import Act
from queries.domain.code.git_references import CodeHostInput, parse_host
from queries.models.grants import CodeHost
from queries.services.access.admin_objects import AdminObject, Verb
from queries.services.access.audit_trail import record_act


def list_host(raw: Mapping[str, Any], *, actor: str, now: datetime) -> CodeHost:
    """Add a host; admins only. An existing host is returned unchanged, with 200.

    Raises `Invalid` if it is not valid.
    """
    host = parse_host(raw)
    with transaction.atomic():
        row, made = CodeHost.objects.get_or_create(
            host=host, taken_at=None, defaults={"given_at": now, "given_by": actor}
        )
        if made:
            record_act(Act.CODE_HOST, actor=actor, now=now, subject=host, did="listed")
    return row


def take_host(row: CodeHost, *, actor: str, now: datetime) -> None:
    """Remove a host: code that was already fetched remains, but no more is fetched."""
    with transaction.atomic():
        listed = CodeHost.objects.filter(pk=row.pk, taken_at=None)
        if listed.update(taken_at=now, taken_by=actor):
            record_act(Act.CODE_HOST, actor=actor, now=now, subject=row.host, did="removed")


def listed_hosts(user: Any) -> QuerySet[CodeHost]:
    """List the git hosts from which definitions can take code, newest first; admins only."""
    return CodeHost.objects.filter(taken_at=None)


GIT_HOSTS = AdminObject(
    "code-hosts/<int:host_id>/",
    "Host",
    listed_hosts,
    "Return a host; admins only.",
    create=Verb("list_code_host", list_host, CodeHostInput),
    remove=Verb("take_code_host", take_host),
    created_at="given_at",
)
