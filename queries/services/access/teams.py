"""Manage teams, their members, and per-account grants. Only admins may call these functions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from pydantic import Field

from queries.domain.access import Act
from queries.domain.definitions.spec import Longest, StrictForm
from queries.domain.errors import Conflict, Invalid, Problem
from queries.domain.validation.query_rules import name_problems
from queries.models.access.accounts import Grant, Team
from queries.models.catalogs import Catalog
from queries.models.drivers import Installation
from queries.roles import VIEW, grant_of
from queries.services.access.accounts import refuse_python, refuse_second_team
from queries.services.access.admin_objects import AdminObject, Verb, unpacked
from queries.services.access.audit import record_act

Members = Annotated[list[Annotated[str, Longest(150)]], Longest(1000)]


class TeamChange(StrictForm):
    """The complete list of a team's members."""

    members: Members


class TeamCreate(StrictForm):
    """A new team."""

    name: Annotated[str, Longest(63)]
    members: Members = Field(default_factory=list)


def create_team(*, name: str, members: Sequence[str] = (), actor: str, now: datetime) -> Team:
    """Create a team with these members; raise `Invalid` if the name is not valid or is taken.

    Raises `Conflict` for a second team with a risky worker (`risk`).
    """
    with transaction.atomic():
        taken = Team.objects.filter(name=name).exists()
        problems = name_problems(name, in_use=taken, what="team")
        if problems:
            raise Invalid(problems)
        refuse_second_team()
        team = Team.objects.create(name=name, created_at=now)
        set_members(team=team, members=members, actor=actor, now=now)
    return team


def set_members(team: Team, *, members: Sequence[str], actor: str, now: datetime) -> None:
    """Replace the team's members; admins only.

    Raises `Invalid` for unknown users.
    """
    users = list(User.objects.filter(username__in=list(members)))
    known = {user.username for user in users}
    unknown = [
        Problem("members", name[:200], "is not an existing user.", "Check the list of users.")
        for name in members
        if name not in known
    ]
    if unknown:
        raise Invalid(unknown)
    with transaction.atomic():
        team.members.set(users)
        about = {"members": sorted(known)}
        record_act(Act.TEAM, actor=actor, now=now, subject=team.name, **about)


def delete_team(team: Team, *, actor: str, now: datetime) -> None:
    """Delete a team without applications, and the tokens limited to it; admins only.

    Raises `Conflict` while it has applications or a catalog of its own: without the team, everyone
    could act on them, or use it.
    """
    with transaction.atomic():
        Installation.lock()  # as a catalog's teams are changed
        living = team.applications.filter(archived_at=None).order_by("name")
        if names := list(living.values_list("name", flat=True)[:5]):
            raise Conflict(
                f"Team {team.name} has applications: {', '.join(names)}.",
                way_out="Assign them to another team first.",
            )
        for row in Catalog.objects.filter(teams=team):
            if row.teams.count() == 1:
                raise Conflict(
                    f"Catalog {row.name} is available to this team only.",
                    way_out="Change or delete the catalog first.",
                )
        team.applications.update(team=None)  # deleted ones, on which nobody acts
        record_act(Act.TEAM, actor=actor, now=now, subject=team.name, deleted=True)
        team.delete()


def set_grants(
    *, user: User, all_teams: bool, write_python: bool, actor: str, now: datetime
) -> None:
    """Set whether a user can act on every team's applications, and can write Python."""
    grants = {"all_teams": all_teams, "write_python": write_python}
    with transaction.atomic():
        if write_python and not grant_of(user).write_python:
            refuse_python(user)
        Grant.objects.update_or_create(user=user, defaults=grants)
        record_act(Act.RIGHTS_GIVEN, actor=actor, now=now, subject=user.get_username(), **grants)


def create_team_once(*, name: str, members: Sequence[str], actor: str, now: datetime) -> Team:
    """Create a team; admins only.

    If the team already exists with these members, the response is 200.
    """
    same = Team.objects.filter(name=name).first()
    if same and {user.username for user in same.members.all()} == set(members):
        return same
    return create_team(name=name, members=members, actor=actor, now=now)


def all_teams(user: Any) -> QuerySet[Team]:
    """List teams, newest first."""
    return Team.objects.prefetch_related("members")


TEAMS = AdminObject(
    "teams/<str:name>/",
    "Team",
    all_teams,
    "Return a team with its members.",
    create=Verb("create_team", unpacked(create_team_once), TeamCreate),
    replace=Verb("replace_team", unpacked(set_members), TeamChange),
    remove=Verb("delete_team", delete_team),
    permission=VIEW,
    created_at="created_at",
)
