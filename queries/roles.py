"""Who may do what: viewer reads, operator acts, author defines, admin manages roles and tokens.

The roles are Django groups of these names; each includes the ones before it. A superuser is
an admin. Pages, streams, logs and API check the same four permissions.
"""

from enum import StrEnum
from typing import Any

import rules
from django.db.models import prefetch_related_objects
from django.db.models.signals import post_migrate


class Role(StrEnum):
    """A role is the name of its group."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    AUTHOR = "author"
    ADMIN = "admin"


ORDER = tuple(Role)
#: What each role may do, for those who choose one.
ROLE_WORDS = {
    Role.VIEWER: "reads everything",
    Role.OPERATOR: "and starts, stops, restarts, resolves",
    Role.AUTHOR: "and defines: can run any code as the drivers' account",
    Role.ADMIN: "and gives roles and tokens",
}

VIEW = "queries.view"
OPERATE = "queries.operate"
DEFINE = "queries.define"
ADMINISTER = "queries.administer"

_PERMISSIONS = {
    VIEW: Role.VIEWER,
    OPERATE: Role.OPERATOR,
    DEFINE: Role.AUTHOR,
    ADMINISTER: Role.ADMIN,
}


def role_of(user: Any) -> Role | None:
    """Return the highest role of a user; None for one who is not signed in or not active."""
    return highest_role(user) if user.is_authenticated and user.is_active else None


def highest_role(user: Any) -> Role | None:
    """Return the highest role that an account holds, active or not; None where it holds none."""
    if user.is_superuser:
        return Role.ADMIN
    prefetch_related_objects([user], "groups")  # a page asks ten times; each request has its user
    names = {group.name for group in user.groups.all()}
    held = [role for role in ORDER if role in names]
    return held[-1] if held else None


def _at_least(role: Role) -> Any:
    def check(user: Any) -> bool:
        held = role_of(user)
        return held is not None and ORDER.index(held) >= ORDER.index(role)

    return rules.predicate(check, name=f"is_at_least_{role}")


def connect() -> None:
    """Register the permissions, and create the groups whenever the database is migrated."""
    for permission, role in _PERMISSIONS.items():
        rules.set_perm(permission, _at_least(role))
    post_migrate.connect(_make_groups, dispatch_uid="queries.roles")


def _make_groups(**_: Any) -> None:
    from django.apps import apps

    group = apps.get_model("auth", "Group")
    for role in ORDER:
        group.objects.get_or_create(name=role.value)
