"""Resolve and reopen failure groups for users; supervision reopens groups that fail again."""

from datetime import datetime

from django.db import transaction

from controlplane.nudge import changed
from queries.domain.access.acts import Act
from queries.domain.reasons import Because, Detail
from queries.domain.states import GroupStatus, Reason
from queries.models.failures import FailureGroup
from queries.services.access.audit_trail import record_act
from queries.services.changes import record


def resolve_group(*, group: FailureGroup, actor: str, now: datetime) -> None:
    """Mark a failure group as resolved; its next failure reopens it."""
    _mark(group, GroupStatus.RESOLVED, actor, now, resolved_at=now, resolved_by=actor)


def reopen_group(*, group: FailureGroup, actor: str, now: datetime) -> None:
    """Mark a resolved failure group as open again."""
    _mark(group, GroupStatus.OPEN, actor, now, resolved_at=None, resolved_by="")


def _mark(
    group: FailureGroup, status: GroupStatus, actor: str, now: datetime, **fields: object
) -> None:
    with transaction.atomic():
        updated = (
            FailureGroup.objects.filter(pk=group.pk)
            .exclude(status=status)
            .update(status=status, **fields)
        )
        if not updated:
            return
        before = GroupStatus.OPEN if status is GroupStatus.RESOLVED else GroupStatus.RESOLVED
        detail = Because(Detail.GROUP, {"group": group.title})
        ids = {"application_id": group.application_id, "query_id": group.query_id}
        record("group", before, status, Reason.NONE, now=now, detail=detail, actor=actor, **ids)
        subject = (group.query or group.application).name
        details = {"group": group.pk, "before": before, "after": status}
        record_act(Act.FAILURES, actor=actor, now=now, subject=subject, **details)
        changed(f"group:{group.pk}")
