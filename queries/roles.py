"""Check permissions: viewers read, operators act, authors define, admins manage users and tokens.

The roles are Django groups of these names; each includes the ones before it. A superuser is an
admin. Pages, streams, logs and API check the same permissions.

Operators and authors act on the applications of their teams, and on those without a team; a
permission that is checked with an application applies only to that application. The token of a
request is attached to its user (`limit_to`), and its limits apply wherever the user is checked.
"""

from dataclasses import dataclass
from enum import IntFlag, StrEnum
from typing import Any

import rules
from django.db.models import prefetch_related_objects
from django.db.models.signals import post_migrate

from queries.models.access.accounts import AccessToken, Grant, Scope
from queries.models.applications import Application


class Role(StrEnum):
    """A role; its value is the name of its group."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    AUTHOR = "author"
    ADMIN = "admin"


ORDER = tuple(Role)
#: What each role may do, shown when choosing one.
ROLE_WORDS = {
    Role.VIEWER: "can view everything",
    Role.OPERATOR: "can also start, stop and restart queries, and resolve failures",
    Role.AUTHOR: "can also change definitions: in SQL, or in Python with the right to write it",
    Role.ADMIN: "can also assign roles, teams, rights and tokens",
}

VIEW = "queries.view"
OPERATE = "queries.operate"
DEFINE = "queries.define"
ADMINISTER = "queries.administer"
#: Granted to individual accounts besides the role: to bring code into drivers.
WRITE_PYTHON = "queries.write_python"

_PERMISSIONS = {
    VIEW: Role.VIEWER,
    OPERATE: Role.OPERATOR,
    DEFINE: Role.AUTHOR,
    ADMINISTER: Role.ADMIN,
}
#: Permissions that apply per application; the others do not depend on one.
OF_TEAMS = frozenset({OPERATE, DEFINE})
#: The highest role of a token with a scope.
ROLE_OF_SCOPE = {
    Scope.READ: Role.VIEWER,
    Scope.OPERATE: Role.OPERATOR,
    Scope.AUTHOR: Role.AUTHOR,
    Scope.ADMIN: Role.ADMIN,
}


class AuthorRights(IntFlag):
    """What an author's definitions may contain besides SQL."""

    SQL = 0
    PYTHON = 1  # code for drivers
    CLUSTER = 2  # where pods run, and what they may use
    ALL = PYTHON | CLUSTER


@dataclass(frozen=True, slots=True)
class Reach:
    """The applications that a user may act on, by IDs of teams and applications."""

    teams: frozenset[int] | None  # of these teams, and without a team; None: all
    token_team: int | None = None  # limited to a token's team; None: no such limit
    applications: frozenset[int] | None = None  # limited to those listed by a token; None: all

    @property
    def is_all(self) -> bool:
        """Return whether everything is included."""
        return self.teams is None and self.token_team is None and self.applications is None

    def holds(self, application: Application) -> bool:
        """Return whether the user is allowed to act on an application."""
        team = application.team_id
        if self.teams is not None and team is not None and team not in self.teams:
            return False
        if self.token_team is not None and team != self.token_team:
            return False
        return self.applications is None or application.pk in self.applications


def limit_to(user: Any, token: AccessToken) -> None:
    """Limit the user of a request to the rights of the token."""
    user.access_token = token


def token_of(user: Any) -> AccessToken | None:
    """Return the token of a request; None for a session."""
    return getattr(user, "access_token", None)


def role_of(user: Any) -> Role | None:
    """Return the highest role of a user; None if the user is not signed in or not active."""
    role = highest_role(user) if user.is_authenticated and user.is_active else None
    token = token_of(user)
    if role is None or token is None:
        return role
    return min(role, ROLE_OF_SCOPE[Scope(token.scope)], key=ORDER.index)


def highest_role(user: Any) -> Role | None:
    """Return the highest role of an account, whether active or not; None if it has no role."""
    if user.is_superuser:
        return Role.ADMIN
    prefetch_related_objects([user], "groups")  # read ten times per page; each request has its user
    names = {group.name for group in user.groups.all()}
    roles = [role for role in ORDER if role in names]
    return roles[-1] if roles else None


def grant_of(user: Any) -> Grant:
    """Return an account's grants in addition to its role; an empty grant if there are none."""
    prefetch_related_objects([user], "grant")
    return getattr(user, "grant", None) or Grant(user=user)


def reach_of(user: Any) -> Reach:
    """Return the applications on which a user may act, if the role allows any action.

    An admin may act on all applications, because an admin could join any team.
    """
    token = token_of(user)
    if highest_role(user) is Role.ADMIN or grant_of(user).all_teams:
        teams = None
    else:
        prefetch_related_objects([user], "teams")
        teams = frozenset(team.pk for team in user.teams.all())
    if token is None:
        return Reach(teams)
    listed = frozenset(row.pk for row in token.applications.all()) if token.is_listed else None
    return Reach(teams, token.team_id, listed)


def may(user: Any, permission: str, application: Application | None = None) -> bool:
    """Return whether a user has a permission, for an application if one is given."""
    return bool(rules.has_perm(permission, user, application))


def author_rights(user: Any) -> AuthorRights:
    """Return what the definitions of a user may contain."""
    python = AuthorRights.PYTHON if may(user, WRITE_PYTHON) else AuthorRights.SQL
    return python | (AuthorRights.CLUSTER if may(user, ADMINISTER) else AuthorRights.SQL)


def role_holds(role: Role | None, permission: str) -> bool:
    """Return whether a role includes a permission, regardless of the user."""
    return role is not None and ORDER.index(role) >= ORDER.index(_PERMISSIONS[permission])


def _of_role(permission: str) -> Any:
    def check(user: Any, application: Application | None) -> bool:
        if not role_holds(role_of(user), permission):
            return False
        if application is None or permission not in OF_TEAMS:
            return True
        return reach_of(user).holds(application)

    return rules.predicate(check, name=permission)


def _writes_python(user: Any) -> bool:
    if not role_holds(role_of(user), DEFINE):
        return False
    return bool(user.is_superuser) or grant_of(user).write_python


def connect() -> None:
    """Register the permissions, and create the groups each time the database is migrated."""
    for permission in _PERMISSIONS:
        rules.set_perm(permission, _of_role(permission))
    rules.set_perm(WRITE_PYTHON, rules.predicate(_writes_python, name=WRITE_PYTHON))
    post_migrate.connect(_make_groups, dispatch_uid="queries.roles")


def _make_groups(**_: Any) -> None:
    from django.apps import apps

    group = apps.get_model("auth", "Group")
    for role in ORDER:
        group.objects.get_or_create(name=role.value)
