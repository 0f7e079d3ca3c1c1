"""Teams, which everyone can read and admins can manage."""

from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.derived import Body, described, shows
from queries.api.methods import Sent, answers, creates, lists
from queries.models.access.teams import Team
from queries.roles import ADMINISTER
from queries.selectors.access.teams import team, team_named
from queries.selectors.supervision.applications import application
from queries.services.access import teams as verbs
from queries.services.definitions.team import give_application


@shows(Team, "name members applications created_at")
class TeamBody(Body):
    """Users who can act on the same applications.

    members: User names.
    applications: Application names.
    """

    members = serializers.SerializerMethodField()
    applications = serializers.SerializerMethodField()

    def get_members(self, row: Team) -> list[str]:
        """Return the members' user names."""
        return sorted(user.username for user in row.members.all())

    def get_applications(self, row: Team) -> list[str]:
        """Return the names of the applications that are not deleted."""
        living = row.applications.filter(archived_at=None)
        return list(living.order_by("name").values_list("name", flat=True))


class TeamChange(serializers.Serializer[Any]):
    """The complete list of a team's members."""

    members = serializers.ListField(child=serializers.CharField(max_length=150), max_length=1000)


class TeamCreate(serializers.Serializer[Any]):
    """A new team."""

    name = serializers.CharField(max_length=63)
    members = serializers.ListField(
        child=serializers.CharField(max_length=150), default=list, max_length=1000
    )


@described
class ApplicationTeam(serializers.Serializer[Any]):
    """The team that owns an application.

    team: Null if the application is open to everyone.
    """

    team = serializers.CharField(allow_null=True, max_length=63)


class TeamsView(ApiView):
    """All teams."""

    @lists("list_teams", TeamBody)
    def get(self) -> QuerySet[Team]:
        """List teams, newest first."""
        return Team.objects.prefetch_related("members")

    @creates("create_team", TeamBody, TeamCreate, role=ADMINISTER, again=TeamBody)
    def post(self, sent: Sent) -> Response:
        """Create a team; admins only.

        If the team already exists with these members, the response is 200.
        """
        there = Team.objects.filter(name=sent["name"]).first()
        if there and {one.username for one in there.members.all()} == set(sent["members"]):
            return Response(TeamBody(there).data)
        row = verbs.create_team(**sent, **self.by)
        location = reverse("api:team", args=[row.name])
        return Response(TeamBody(row).data, status=201, headers={"Location": location})


class TeamView(ApiView):
    """One team."""

    @answers("get_team", TeamBody)
    def get(self, name: str) -> Team:
        """Return a team with its members."""
        return team(name)

    @answers("replace_team", TeamBody, role=ADMINISTER, form=TeamChange)
    def put(self, sent: Sent, name: str) -> Team:
        """Replace the team's members; admins only."""
        verbs.set_members(team=team(name), **sent, **self.by)
        return team(name)

    @answers("delete_team", None, role=ADMINISTER)
    def delete(self, name: str) -> None:
        """Delete a team without applications, and the tokens limited to it; admins only."""
        verbs.delete_team(team=team(name), **self.by)


class ApplicationTeamView(ApiView):
    """The team that owns an application."""

    @answers("get_application_team", ApplicationTeam)
    def get(self, name: str) -> dict[str, Any]:
        """Return an application's team, which also owns its queries."""
        row = application(name).team
        return {"team": row.name if row else None}

    @answers("replace_application_team", ApplicationTeam, role=ADMINISTER, form=ApplicationTeam)
    def put(self, sent: Sent, name: str) -> dict[str, Any]:
        """Assign an application to a team; admins only. Nothing is restarted."""
        chosen = team_named(sent["team"]) if sent["team"] else None
        give_application(application=application(name), team=chosen, **self.by)
        return {"team": chosen.name if chosen else None}
