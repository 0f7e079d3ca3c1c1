"""Accounts with their roles and tokens, for the pages on which they are given."""

from dataclasses import dataclass

from django.contrib.auth.models import User

from queries.domain.errors import Missing
from queries.models.tokens import AccessToken
from queries.roles import ORDER, Role


@dataclass(frozen=True, slots=True)
class Person:
    """An account with its highest role and how many tokens speak for it."""

    user: User
    role: Role | None
    tokens: int


def people() -> list[Person]:
    """Return all accounts by name, in three database queries."""
    counts: dict[int, int] = {}
    for owner in AccessToken.objects.values_list("user_id", flat=True):
        counts[owner] = counts.get(owner, 0) + 1
    return [
        Person(user, _role(user), counts.get(user.pk, 0))
        for user in User.objects.prefetch_related("groups").order_by("username")
    ]


def _role(user: User) -> Role | None:
    if user.is_superuser:
        return Role.ADMIN
    names = {group.name for group in user.groups.all()}
    held = [role for role in ORDER if role in names]
    return held[-1] if held else None


def person(user_id: int) -> User:
    """Return an account; raise `Missing` where there is none."""
    user = User.objects.filter(pk=user_id).first()
    if user is None:
        raise Missing(f"There is no user {user_id}.")
    return user


def tokens_of(user: User) -> list[AccessToken]:
    """Return a user's tokens, newest first."""
    return list(AccessToken.objects.filter(user=user).order_by("-created"))


def token_of(user: User, uuid: object) -> AccessToken:
    """Return one token of a user; raise `Missing` where there is none."""
    token: AccessToken | None = AccessToken.objects.filter(user=user, uuid=uuid).first()
    if token is None:
        raise Missing("There is no such token; it may have been revoked already.")
    return token
