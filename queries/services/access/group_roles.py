"""Manage the group-to-role table, for admins. Changes apply from each user's next sign-in."""

from datetime import datetime

from django.db import IntegrityError, transaction

from queries.domain.access.acts import Act
from queries.domain.access.single_sign_on import read_group
from queries.domain.errors import Conflict, Invalid, Problem
from queries.models.access.group_roles import GroupRole
from queries.roles import Role
from queries.services.access.audit_trail import record_act
from queries.services.access.root_worker import refuse_author


def add_group_role(*, group: str, role: str, actor: str, now: datetime) -> GroupRole:
    """Map a group to a role; raise `Invalid` for wrong values, `Conflict` for a mapped group."""
    if _role(role) is Role.AUTHOR:
        refuse_author(f"The group {read_group(group)}")
    row = GroupRole(
        group=read_group(group), role=_role(role), created_at=now, created_by=actor[:150]
    )
    try:
        with transaction.atomic():
            row.save()
            record_act(Act.GROUP_ROLES, actor=actor, now=now, subject=row.group, after=row.role)
    except IntegrityError as error:
        raise Conflict(
            f"The group {row.group} already has a role.", way_out="Change that role, or remove it."
        ) from error
    return row


def change_group_role(row: GroupRole, *, role: str, actor: str, now: datetime) -> None:
    """Change the role of a mapped group."""
    about = {"before": row.role, "after": _role(role)}
    if _role(role) is Role.AUTHOR:
        refuse_author(f"The group {row.group}", _role(row.role))
    with transaction.atomic():
        row.role = _role(role)
        row.save(update_fields=["role"])
        record_act(Act.GROUP_ROLES, actor=actor, now=now, subject=row.group, **about)


def remove_group_role(row: GroupRole, *, actor: str, now: datetime) -> None:
    """Remove a group's mapping."""
    with transaction.atomic():
        row.delete()
        about = {"before": row.role, "after": "none"}
        record_act(Act.GROUP_ROLES, actor=actor, now=now, subject=row.group, **about)


def _role(word: str) -> Role:
    if word not in set(Role):
        way_out = f"Choose {', '.join(Role)}."
        raise Invalid([Problem("role", word[:200], "is not a valid role.", way_out)])
    return Role(word)
