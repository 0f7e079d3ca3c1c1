"""Manage tokens for CI.

Admins create tokens in the console, over REST or from the command line. A token's owner or an admin
can revoke it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import QuerySet
from pydantic import Field

from queries.domain.access.acts import Act
from queries.domain.definitions.spec import Longest, StrictForm
from queries.domain.errors import Invalid, Problem
from queries.models.access.teams import Team
from queries.models.applications import Application
from queries.models.tokens import AccessToken, Scope
from queries.roles import VIEW
from queries.selectors.access.teams import team_named
from queries.selectors.console.accounts import owner_named, tokens_seen_by
from queries.services.access.admin_objects import AdminObject, Verb
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


class TokenCreate(StrictForm):
    """A new token: its user, its purpose, its limits, its lifetime.

    name: What the token is for.
    scope: The token's maximum rights; its user's role limits them further.
    team: The token can act only on its applications; for the operate and author scopes.
    applications: The token can act only on these; for the operate and author scopes.
    """

    user: Annotated[str, Longest(150)]
    name: Annotated[str, Longest(80)]
    days: Annotated[int, Field(ge=1, le=LONGEST_DAYS)] = DEFAULT_DAYS
    scope: Scope = DEFAULT_SCOPE
    team: Annotated[str, Longest(63)] = ""
    applications: Annotated[list[Annotated[str, Longest(80)]], Longest(100)] = Field(
        default_factory=list
    )


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
    existing = {row.name for row in listed}
    problems += [
        Problem("applications", name[:200], "is not an existing application.", "Check the names.")
        for name in applications
        if name not in existing
    ]
    return chosen, listed


def revoke_token(token: AccessToken, *, actor: str, now: datetime) -> None:
    """Revoke your own token; admins can revoke any token."""
    with transaction.atomic():
        about = _about(token)
        token.delete()
        record_act(Act.TOKEN_REVOKED, actor=actor, now=now, subject=token.name, **about)


def _about(token: AccessToken) -> dict[str, str]:
    return {"user": token.user.get_username(), "token_uuid": str(token.uuid)}


def create_token_for(form: Mapping[str, Any], **by: Any) -> tuple[AccessToken, str]:
    """Create a token for a user; its text is returned only once."""
    return create_token(**{**form, "user": owner_named(form["user"])}, **by)


def listed_tokens(user: Any) -> QuerySet[AccessToken]:
    """List your tokens; an admin sees all tokens, or those of `user`."""
    return tokens_seen_by(user)


TOKENS = AdminObject(
    "tokens/<uuid:uuid>/",
    "Token",
    listed_tokens,
    "Return a token, without its text.",
    create=Verb("create_token", create_token_for, TokenCreate),
    remove=Verb("revoke_token", revoke_token, permission=VIEW),
    permission=VIEW,
    shown_once="token",
    missing="The token does not exist, or it is not yours.",
    filters=(("user", "user__username", "Only this user's tokens; admins only."),),
)


def forget_expired_tokens(*, now: datetime) -> int:
    """Delete expired tokens; return how many."""
    deleted: int = AccessToken.objects.filter(expiry__lt=now).delete()[0]
    return deleted
