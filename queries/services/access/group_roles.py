"""Manage the group-to-role table, for admins. Changes apply from each user's next sign-in."""

from datetime import datetime
from typing import Annotated, Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from queries.domain.access.acts import Act
from queries.domain.access.single_sign_on import read_group
from queries.domain.definitions.spec import Longest, StrictForm
from queries.domain.errors import Conflict, Invalid, Problem
from queries.models.access.group_roles import GroupRole
from queries.roles import Role
from queries.services.access.admin_objects import AdminObject, Verb, unpacked
from queries.services.access.audit_trail import record_act
from queries.services.access.root_worker import refuse_author


class RoleForm(StrictForm):
    """A new role for a group."""

    role: Role


class GroupRoleForm(StrictForm):
    """A group and its role.

    group: Spelled exactly as the identity provider sends it.
    """

    group: Annotated[str, Longest(255)]
    role: Role


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
    """Change the group's role."""
    about = {"before": row.role, "after": _role(role)}
    if _role(role) is Role.AUTHOR:
        refuse_author(f"The group {row.group}", _role(row.role))
    with transaction.atomic():
        row.role = _role(role)
        row.save(update_fields=["role"])
        record_act(Act.GROUP_ROLES, actor=actor, now=now, subject=row.group, **about)


def remove_group_role(row: GroupRole, *, actor: str, now: datetime) -> None:
    """Remove the group's role."""
    with transaction.atomic():
        row.delete()
        about = {"before": row.role, "after": "none"}
        record_act(Act.GROUP_ROLES, actor=actor, now=now, subject=row.group, **about)


def add_group_role_once(*, group: str, role: str, actor: str, now: datetime) -> GroupRole:
    """Assign a role to a group, effective from each member's next sign-in.

    If the group already has this role, the response is 200.
    """
    same = GroupRole.objects.filter(group=group, role=role).first()
    return same or add_group_role(group=group, role=role, actor=actor, now=now)


def all_group_roles(user: Any) -> QuerySet[GroupRole]:
    """List the groups that have a role."""
    return GroupRole.objects.all()


def _role(word: str) -> Role:
    if word not in set(Role):
        way_out = f"Choose {', '.join(Role)}."
        raise Invalid([Problem("role", word[:200], "is not a valid role.", way_out)])
    return Role(word)


GROUP_ROLES = AdminObject(
    "group-roles/<int:row_id>/",
    "Group role",
    all_group_roles,
    "Return a group and its role.",
    create=Verb("create_group_role", unpacked(add_group_role_once), GroupRoleForm),
    replace=Verb("change_group_role", unpacked(change_group_role), RoleForm),
    remove=Verb("delete_group_role", remove_group_role),
    created_at="created_at",
)
