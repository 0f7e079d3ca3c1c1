"""Teams, their members, and what they act on. Only an admin calls these."""

from collections.abc import Sequence
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from controlplane.nudge import changed
from queries.domain.errors import Conflict, Invalid, NotAllowed, Problem
from queries.domain.reasons import Because, Detail
from queries.domain.validation.query_rules import name_problems
from queries.models.access.teams import Grant, Team
from queries.models.applications import Application
from queries.services.definitions.revisions import record_definition


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
    team.members.set(users)


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
        team.delete()


def give_application(
    *, application: Application, team: Team | None, actor: str, now: datetime
) -> None:
    """Give an application to a team; None: to everybody. Nothing is restarted."""
    with transaction.atomic():
        rows = Application.objects.select_for_update(of=("self",)).select_related("team")
        held = rows.get(pk=application.pk)
        if held.archived_at is not None:
            raise NotAllowed(f"{held} has been deleted.", way_out="Create it again.")
        if held.team == team:
            return
        Application.objects.filter(pk=held.pk).update(team=team)
        texts = (str(held.team or ""), str(team or ""))
        record_definition(held, None, *texts, actor, now, Because(Detail.TEAM))
        changed(f"application:{held.pk}")


def set_grants(
    *, user: User, all_teams: bool, write_python: bool, actor: str, now: datetime
) -> None:
    """Let a user act on every team's applications or not, and write Python or not."""
    grants = {"all_teams": all_teams, "write_python": write_python}
    Grant.objects.update_or_create(user=user, defaults=grants)
