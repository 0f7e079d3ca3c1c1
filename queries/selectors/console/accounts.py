"""Read accounts with their roles and tokens, for the pages that manage them."""

from collections import Counter
from dataclasses import dataclass

import rules
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import QuerySet

from queries.domain.errors import Invalid, Problem
from queries.models.access.teams import Grant
from queries.models.tokens import AccessToken
from queries.roles import ADMINISTER, Role, grant_of, highest_role
from queries.selectors.access.group_roles import those_of_single_sign_on
from queries.selectors.first_or_missing import first_or_missing


@dataclass(frozen=True, slots=True)
class Person:
    """An account with its highest role, its rights, its teams and its number of tokens."""

    user: User
    role: Role | None
    grant: Grant
    teams: tuple[str, ...]  # names
    tokens: int
    by_single_sign_on: bool  # its role comes from its groups, and it has no password


def people() -> list[Person]:
    """Return all accounts by name, in six database queries."""
    counts = Counter(AccessToken.objects.values_list("user_id", flat=True))
    others = those_of_single_sign_on()
    return [
        Person(
            user,
            highest_role(user),
            grant_of(user),
            tuple(team.name for team in user.teams.all()),
            counts[user.pk],
            user.pk in others,
        )
        for user in User.objects.prefetch_related("groups", "grant", "teams").order_by("username")
    ]


def person(user_id: int) -> User:
    """Return an account; raise `Missing` if there is none."""
    return first_or_missing(User.objects.filter(pk=user_id), f"User {user_id} does not exist.")


def tokens_seen_by(user: User | AnonymousUser) -> QuerySet[AccessToken]:
    """Return the tokens that a user can see and revoke, newest first; an admin sees all."""
    rows: QuerySet[AccessToken] = AccessToken.objects.select_related("user", "team").order_by(
        "-created"
    )
    rows = rows.prefetch_related("applications")
    return rows if rules.has_perm(ADMINISTER, user) else rows.filter(user=user.pk)


def owner_named(username: str) -> User:
    """Return the active account with this name, for a new token; raise `Invalid` without one."""
    user = User.objects.filter(username=username.replace("\x00", ""), is_active=True).first()
    if user is None:
        raise Invalid(
            [Problem("user", username[:200], "is not an active user.", "Check the list of users.")]
        )
    return user
