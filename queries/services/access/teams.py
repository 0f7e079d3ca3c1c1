"""Teams and their members, and what an account has beside its role. Only an admin calls these."""

from collections.abc import Sequence
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from queries.domain.access.acts import Act
from queries.domain.errors import Conflict, Invalid, Problem
from queries.domain.validation.query_rules import name_problems
from queries.models.access.teams import Grant, Team
from queries.services.access.audit_trail import record_act


def create_team(*, name: str, members: Sequence[str] = (), actor: str, now: datetime) -> Team:
    """Make a team of these users. Raises `Invalid` for a name that will not do or is taken."""
    with transaction.atomic():
        taken = Team.objects.filter(name=name).exists()
        problems = name_problems(name, taken=taken, what="team")
        if problems:
            raise Invalid(problems)
        team = Team.objects.create(name=name, created_at=now)
        set_members(team=team, members=members, actor=actor, now=now)
    return team


def set_members(*, team: Team, members: Sequence[str], actor: str, now: datetime) -> None:
    """Make these users the members of a team, and no others; raise `Invalid` for unknown ones."""
    users = list(User.objects.filter(username__in=list(members)))
    known = {user.username for user in users}
    unknown = [
        Problem("members", name[:200], "is not a user.", "Check the list of users.")
        for name in members
        if name not in known
    ]
    if unknown:
        raise Invalid(unknown)
    with transaction.atomic():
        team.members.set(users)
        about = {"members": sorted(known)}
        record_act(Act.TEAM, actor=actor, now=now, subject=team.name, **about)


def delete_team(*, team: Team, actor: str, now: datetime) -> None:
    """Delete a team with the tokens that act for it; raise `Conflict` while it has applications.

    They would be everybody's without it.
    """
    with transaction.atomic():
        living = team.applications.filter(archived_at=None).order_by("name")
        if names := list(living.values_list("name", flat=True)[:5]):
            raise Conflict(
                f"Team {team.name} has applications: {', '.join(names)}.",
                way_out="Give them to another team first.",
            )
        team.applications.update(team=None)  # deleted ones, on which nobody acts any more
        record_act(Act.TEAM, actor=actor, now=now, subject=team.name, deleted=True)
        team.delete()


def set_grants(
    *, user: User, all_teams: bool, write_python: bool, actor: str, now: datetime
) -> None:
    """Let a user act on every team's applications or not, and write Python or not."""
    grants = {"all_teams": all_teams, "write_python": write_python}
    with transaction.atomic():
        Grant.objects.update_or_create(user=user, defaults=grants)
        record_act(Act.RIGHTS_GIVEN, actor=actor, now=now, subject=user.get_username(), **grants)
