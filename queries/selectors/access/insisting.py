"""Check whether a user may act on an application; no other module makes this check."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q
from django.urls import ResolverMatch

from queries.domain.errors import Forbidden
from queries.models.access.teams import Team
from queries.models.applications import Application
from queries.roles import (
    OF_TEAMS,
    Reach,
    Role,
    highest_role,
    reach_of,
    role_holds,
    token_of,
)
from queries.selectors.access.targets import Concerned, concerned

#: Most names listed as people who can help.
_NAMED_AT_MOST = 3


def insist_at(user: Any, permission: str, match: ResolverMatch | None) -> None:
    """Raise `Forbidden` if a user lacks a permission for the subject of a URL."""
    if permission in OF_TEAMS and match is not None:
        insist(user, concerned(match))


def insist_scope(user: Any, permission: str) -> None:
    """Raise `Forbidden` if a token's scope denies its user a permission."""
    token = token_of(user)
    if token is not None and role_holds(highest_role(user), permission):
        raise Forbidden(
            f"The token {token.name} has the {token.scope} scope, which does not allow this.",
            way_out=f"Ask an admin ({_admins()}) for a token with a higher scope.",
        )


def reaches(user: Any, match: ResolverMatch | None) -> bool:
    """Return whether a user may act on the subject of a URL, within the user's role."""
    reach = reach_of(user)
    if reach.is_all or match is None:
        return True
    try:
        found = concerned(match)
    except LookupError:  # a read-only page
        return True
    return found is not None and all(map(reach.holds, found))


def reached(user: Any, several: Sequence[Concerned]) -> list[bool]:
    """Return, for each row of a list, whether a user may act on its subject."""
    reach = reach_of(user)
    all_of_them = reach.is_all or (None in several and _are_everybodys(reach))
    return [
        all_of_them if applications is None else all(map(reach.holds, applications))
        for applications in several
    ]


def _are_everybodys(reach: Reach) -> bool:
    """Return whether there are no teams, so that every application is open to everyone."""
    return reach == Reach(frozenset()) and not Team.objects.exists()


def insist(user: Any, applications: Concerned) -> None:
    """Raise `Forbidden` if a user may not act on these applications; None means all."""
    reach = reach_of(user)
    if reach.is_all:
        return
    if applications is None:
        if _are_everybodys(reach):
            return
        raise Forbidden(
            "This affects applications of all teams, and you cannot act for all teams.",
            way_out=f"Select applications of your teams, or ask an admin ({_admins()}).",
        )
    for application in applications:
        if not reach.holds(application):
            raise _refusal(user, reach, application)


def insist_on(user: Any, application: Application) -> None:
    """Raise `Forbidden` if a user may not act on an application."""
    insist(user, [application])


def _refusal(user: Any, reach: Reach, application: Application) -> Forbidden:
    """Return the error, naming the team and the users who can help."""
    if Reach(reach.teams).holds(application):  # refused by the token's own limits
        token = token_of(user)
        assert token is not None, "who has no token has no limits of one"
        return Forbidden(
            f"The token {token.name} cannot act on application "
            f"{application.name}{f' of team {application.team.name}' if application.team else ''}"
            ".",
            way_out=(
                f"It can act on {limits_text(token)}. Ask an admin ({_admins()}) for another token."
            ),
        )
    team = application.team
    assert team is not None, "what has no team is everybody's"
    members = _names(team.members.filter(is_active=True))
    ask = f"Ask a member of {team.name} ({members}) to do it, or" if members else "Ask"
    return Forbidden(
        f"Application {application.name} belongs to team {team.name}, and you are not a member.",
        way_out=f"{ask} an admin ({_admins()}) to add you to the team.",
    )


def limits_text(token: Any) -> str:
    """Return a token's applications: "team data", "a, b of team data", "" for all."""
    names = sorted(row.name for row in token.applications.all()) if token.is_listed else []
    listed = (", ".join(names) or "no application") if token.is_listed else ""
    team = f"team {token.team.name}" if token.team else ""
    return " of ".join(part for part in (listed, team) if part)


def who_can_help() -> str:
    """Return the names of admins, for a message."""
    return _admins()


def _admins() -> str:
    admins = User.objects.filter(Q(is_superuser=True) | Q(groups__name=Role.ADMIN), is_active=True)
    return _names(admins.distinct()) or "there is none yet"


def _names(users: Any) -> str:
    names: Iterable[str] = users.order_by("username").values_list("username", flat=True)
    return ", ".join(names[:_NAMED_AT_MOST])  # type: ignore[index]
