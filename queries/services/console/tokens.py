"""Manage tokens for CI.

Admins create tokens in the console, over REST or from the command line. A token's owner or an admin
can revoke it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from queries.domain.access.acts import Act
from queries.domain.errors import Invalid, Problem
from queries.models.access.teams import Team
from queries.models.applications import Application
from queries.models.tokens import AccessToken, Scope
from queries.selectors.access.teams import team_named
from queries.services.access.audit_trail import record_act

#: How many days a token is valid by default, and at most.
DEFAULT_DAYS = 90
LONGEST_DAYS = 366
#: A token's scope if none is given.
DEFAULT_SCOPE = Scope.AUTHOR
#: Scopes that cannot be restricted to a team or applications, and why.
_UNLIMITED = {
    Scope.READ: "cannot be limited to applications: everyone who can read can read all of them.",
    Scope.ADMIN: "cannot be limited to applications: an admin assigns rights on all of them.",
}


def create_token(
    *,
    user: AbstractBaseUser,
    name: str,
    actor: str,
    now: datetime,
    days: int = DEFAULT_DAYS,
    scope: str = DEFAULT_SCOPE,
    team: str = "",
    applications: Sequence[str] = (),
) -> tuple[AccessToken, str]:
    """Return a new token's row and its text, which is shown only once.

    The token expires after `days` (1 to 366). It has its user's rights, limited to its scope and,
    if given, to the team's applications and those in `applications`. Raises `Invalid` for invalid
    arguments.
    """
    problems = _limit_problems(scope, limited=bool(team or applications))
    chosen, listed = _limits(team, applications, problems)
    if not name.strip() or len(name) > 80:
        problems.append(
            Problem(
                "name", name[:200], "must have 1 to 80 characters.", "Enter what the token is for."
            )
        )
    if not 1 <= days <= LONGEST_DAYS:
        problems.append(
            Problem(
                "days",
                str(days),
                f"is not between 1 and {LONGEST_DAYS}.",
                "Replace the token before it expires.",
            )
        )
    if problems:
        raise Invalid(problems)
    with transaction.atomic():
        row, text = AccessToken.objects.create(
            user=user,
            expiry=timedelta(days=days),
            name=name.strip(),
            created_by=actor,
            scope=scope,
            team=chosen,
            is_listed=bool(listed),
        )
        row.applications.set(listed)
        about = {**_about(row), "days": days, "scope": str(row.scope)}
        record_act(Act.TOKEN_CREATED, actor=actor, now=now, subject=row.name, **about)
    return row, text


def _limit_problems(scope: str, *, limited: bool) -> list[Problem]:
    if scope not in set(Scope):
        return [
            Problem("scope", scope[:200], "is not a valid scope.", f"Choose {', '.join(Scope)}.")
        ]
    if limited and scope in _UNLIMITED:
        way_out = "Remove team and applications, or choose operate or author."
        return [Problem("scope", scope, _UNLIMITED[Scope(scope)], way_out)]
    return []


def _limits(
    team: str, applications: Sequence[str], problems: list[Problem]
) -> tuple[Team | None, list[Application]]:
    """Return the team and the applications; add a problem for each name that does not exist."""
    chosen = None
    try:
        chosen = team_named(team) if team else None
    except Invalid as error:
        problems += error.problems
    living = Application.objects.filter(archived_at=None, name__in=list(applications))
    listed = list(living)
    known = {row.name for row in listed}
    problems += [
        Problem("applications", name[:200], "is not an existing application.", "Check the names.")
        for name in applications
        if name not in known
    ]
    return chosen, listed


def revoke_token(*, token: AccessToken, actor: str, now: datetime) -> None:
    """Revoke a token immediately."""
    with transaction.atomic():
        about = _about(token)
        token.delete()
        record_act(Act.TOKEN_REVOKED, actor=actor, now=now, subject=token.name, **about)


def _about(token: AccessToken) -> dict[str, str]:
    return {"user": token.user.get_username(), "token_uuid": str(token.uuid)}


def forget_expired_tokens(*, now: datetime) -> int:
    """Delete expired tokens; return how many."""
    deleted: int = AccessToken.objects.filter(expiry__lt=now).delete()[0]
    return deleted
