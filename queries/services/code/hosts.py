"""Manage the hosts from which definitions can take code; for admins only, audited."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from queries.domain.access.acts import Act
from queries.domain.code.git_references import parse_host
from queries.models.grants import CodeHost
from queries.services.access.audit_trail import record_act


def list_host(raw: Mapping[str, Any], *, actor: str, now: datetime) -> CodeHost:
    """Add a host; an existing one is returned unchanged. Raises `Invalid` if it is not valid."""
    host = parse_host(raw)
    with transaction.atomic():
        row, made = CodeHost.objects.get_or_create(
            host=host, taken_at=None, defaults={"given_at": now, "given_by": actor}
        )
        if made:
            record_act(Act.CODE_HOST, actor=actor, now=now, subject=host, did="listed")
    return row


def take_host(row: CodeHost, *, actor: str, now: datetime) -> None:
    """Remove a host from the list; code already fetched is kept, but no more is fetched."""
    with transaction.atomic():
        listed = CodeHost.objects.filter(pk=row.pk, taken_at=None)
        if listed.update(taken_at=now, taken_by=actor):
            record_act(Act.CODE_HOST, actor=actor, now=now, subject=row.host, did="removed")
