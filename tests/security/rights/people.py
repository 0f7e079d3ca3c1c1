"""Everybody who may ask: strangers, each role inside and outside of the team, and tokens."""

from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from queries.models.access.accounts import Grant, Scope, Team
from queries.roles import ORDER, Role
from queries.services.access.tokens import create_token
from tests.security.rights.needs import OF_TEAM, Need

#: The team whose application every address of the test is about, and another one.
TEAM, OTHER = "data", "web"
_LEAST = {
    Need.VIEW: Role.VIEWER,
    Need.OPERATE: Role.OPERATOR,
    Need.OPERATE_SOMEWHERE: Role.OPERATOR,
    Need.DEFINE: Role.AUTHOR,
    Need.DEFINE_SOMEWHERE: Role.AUTHOR,
    Need.ADMINISTER: Role.ADMIN,
}


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody who asks; with a scope, by a token of that account."""

    name: str
    role: Role | None = None  # what they are here, by account and token
    inside: bool = False  # acts on the team's application
    python: bool = False
    account: str = ""  # the role of the account, where a token lowers it
    scope: str = ""
    limits: dict[str, Any] = field(default_factory=dict)  # of the token
    team: str = ""  # that the account is in
    all_teams: bool = False

    def may(self, need: Need) -> bool:
        """Return whether they may do what takes this."""
        if need is Need.NOTHING:
            return True
        if self.role is None or ORDER.index(self.role) < ORDER.index(_LEAST[need]):
            return False
        return need not in OF_TEAM or self.inside


def rank(who: Who) -> tuple[int, bool]:
    """Order people by how much they may do."""
    return (-1 if who.role is None else ORDER.index(who.role), who.inside)


STRANGER = Who("a stranger")
_O, _A = Role.OPERATOR, Role.AUTHOR
SIGNED_IN = (
    Who("an account without a role"),
    Who("a viewer", Role.VIEWER),
    Who("an operator of the team", _O, inside=True, team=TEAM),
    Who("an operator of another", _O, team=OTHER),
    Who("an operator of none", _O),
    Who("an operator of all", _O, inside=True, all_teams=True),
    Who("an author of the team", _A, inside=True, python=True, team=TEAM),
    Who("an author of SQL", _A, inside=True, team=TEAM),
    Who("an author of another", _A, python=True, team=OTHER),
    Who("an author of all", _A, inside=True, python=True, all_teams=True),
    Who("an admin", Role.ADMIN, inside=True, python=True),
)


def _by(name: str, role: Role, scope: Scope, account: str = "author", **more: object) -> Who:
    python = role in (Role.AUTHOR, Role.ADMIN) and account in ("author", "admin")
    given = {"inside": True, "python": python, "all_teams": True, **more}
    return Who(f"a token that {name}", role, account=account, scope=scope, **given)  # type: ignore[arg-type]


TOKENS = (
    _by("reads", Role.VIEWER, Scope.READ),
    _by("operates", Role.OPERATOR, Scope.OPERATE),
    _by("defines", Role.AUTHOR, Scope.AUTHOR),
    _by("defines for a viewer", Role.VIEWER, Scope.AUTHOR, account="viewer"),
    _by("defines for an admin", Role.AUTHOR, Scope.AUTHOR, account="admin"),
    _by("administers", Role.ADMIN, Scope.ADMIN, account="admin"),
    _by("administers for an author", Role.AUTHOR, Scope.ADMIN),
    _by("defines for the team", Role.AUTHOR, Scope.AUTHOR, limits={"team": TEAM}),
    _by(
        "defines for another team", Role.AUTHOR, Scope.AUTHOR, limits={"team": OTHER}, inside=False
    ),
    _by(
        "operates the application",
        Role.OPERATOR,
        Scope.OPERATE,
        limits={"applications": ["flights"]},
    ),
    _by(
        "operates another application",
        Role.OPERATOR,
        Scope.OPERATE,
        limits={"applications": ["shops"]},
        inside=False,
    ),
    _by(
        "defines for an account of another team",
        Role.AUTHOR,
        Scope.AUTHOR,
        all_teams=False,
        team=OTHER,
        inside=False,
    ),
    _by(
        "names a team that its account is not in",
        Role.AUTHOR,
        Scope.AUTHOR,
        all_teams=False,
        team=OTHER,
        inside=False,
        limits={"team": TEAM},
    ),
)


def _account(who: Who, number: int) -> User:
    user = User.objects.create_user(f"p{number}")
    if role := who.account or who.role:
        user.groups.add(Group.objects.get(name=str(role)))
    Grant.objects.create(user=user, all_teams=who.all_teams, write_python=who.python)
    if who.team:
        Team.objects.get(name=who.team).members.add(user)
    return user


def ways_in() -> dict[str, dict[str, str]]:
    """Make everybody; return what a request of each carries, by their names."""
    found: dict[str, dict[str, str]] = {STRANGER.name: {}}
    for number, who in enumerate((*SIGNED_IN, *TOKENS)):
        user = _account(who, number)
        if who.scope:
            _, text = create_token(
                user=user,
                name=who.name[:80],
                actor="ada",
                now=timezone.now(),
                scope=who.scope,
                **who.limits,
            )
            found[who.name] = {"HTTP_AUTHORIZATION": f"Token {text}"}
        else:
            browser = Client()
            browser.force_login(user)
            session = browser.cookies[settings.SESSION_COOKIE_NAME].value
            found[who.name] = {"HTTP_COOKIE": f"{settings.SESSION_COOKIE_NAME}={session}"}
    return found
