"""Access over REST: the audit log, and rights of users and teams."""

from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers

from queries.api.admin_objects import endpoints
from queries.api.base import ApiView
from queries.api.bodies import Body, described, serializer_for
from queries.api.methods import Sent, answers, lists, whole, whole_number, word
from queries.domain.access import Act
from queries.models.access.accounts import AccessToken, GroupRole, Scope, Team
from queries.models.access.audit import AuditEntry
from queries.roles import ADMINISTER, WRITE_PYTHON, Role, may, reach_of, role_of
from queries.selectors.access import FILTERS, entries, own_teams, team_named
from queries.selectors.supervision.applications import application
from queries.services.access.audit import JSON_LINES, export_audit_log
from queries.services.access.sign_ins import GROUP_ROLES
from queries.services.access.teams import TEAMS
from queries.services.access.tokens import TOKENS
from queries.services.definitions.rights import give_application

#: The highest number that can be requested.
_MOST = 999_999_999


@serializer_for(
    AuditEntry, "number at act=kind subject actor token token_id address details seal mac", act=Act
)
class AuditEntryBody(Body):
    """An action by a user or with a token.

    number: The entry's position in the chain; null until it is added to the chain.
    act: The kind of action.
    subject: The name of the object acted on.
    actor: The user; empty if unknown.
    token: The name of the token that was used; empty for a signed-in user.
    address: The client's IP address; empty for a command.
    seal: A seal over the entry's content.
    mac: A MAC over the number, the seal and the previous entry's MAC.
    """


class AuditView(ApiView):
    """The audit log."""

    @lists(
        "list_audit_entries",
        AuditEntryBody,
        by="at pk",
        role=ADMINISTER,
        parameters=[word(name, Act if name == "act" else ()) for name in FILTERS],
    )
    def get(self) -> QuerySet[AuditEntry]:
        """List actions of users and tokens, newest first."""
        self.choice_params("act", Act) if self.query_param("act") else None
        return entries({name: self.query_param(name) for name in FILTERS})


class AuditExportView(ApiView):
    """The complete audit log."""

    @answers(
        "export_audit_log",
        None,
        role=ADMINISTER,
        parameters=[
            whole("after", 0, low=0, high=_MOST, about="Only entries with a higher number.")
        ],
        responses={(200, JSON_LINES): OpenApiTypes.STR},
    )
    def get(self) -> StreamingHttpResponse:
        """Return the entries as JSON lines, oldest first; the export itself is recorded."""
        after = whole_number(self.request, "after", 0, low=0, high=_MOST)
        return export_audit_log(self.request._request, after=after, **self.by)


@serializer_for(Team, "name members applications created_at")
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


@serializer_for(GroupRole, "id group role created_at created_by", role=Role)
class GroupRoleBody(Body):
    """A group in the identity provider, and the role of its members."""


@serializer_for(
    AccessToken,
    "id=uuid user=user.username name begins_with scope team=team.name applications "
    "created_at=created created_by expires_at=expiry last_used_at",
    scope=Scope,
)
class TokenBody(Body):
    """A token, without its secret value.

    team: The token can act only on this team's applications; null: no restriction. applications:
    The token can act only on these applications; null: no restriction. last_used_at: Accurate to
    the minute.
    """

    applications = serializers.SerializerMethodField()

    def get_begins_with(self, token: AccessToken) -> str:
        """Return the first characters of the token, which identify it."""
        return str(token.token_key)[:8]

    def get_applications(self, token: AccessToken) -> list[str] | None:
        """Return the names of the applications that the token is limited to."""
        listed = token.applications.all() if token.is_listed else None
        return None if listed is None else sorted(row.name for row in listed)


class NewTokenBody(TokenBody):
    """A new token with its secret value, which is shown only once."""

    token = serializers.CharField()


@described
class ApplicationTeam(serializers.Serializer[Any]):
    """The team that owns an application.

    team: Null if the application is open to everyone.
    """

    team = serializers.CharField(allow_null=True, max_length=63)


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


@described
class MeBody(Body):
    """The user of a request, and the request's permissions.

    role: The user's role, as limited by the token's scope.
    teams: Only applications of these teams or without a team can be acted on; null: no limit.
    may_write_python: Whether the request is allowed to load code into drivers.
    """

    user = serializers.CharField()
    role = serializers.ChoiceField([str(role) for role in Role])
    teams = serializers.ListField(child=serializers.CharField(), allow_null=True)
    may_write_python = serializers.BooleanField()


class MeView(ApiView):
    """The user behind the request."""

    @answers("get_me", MeBody)
    def get(self) -> dict[str, Any]:
        """Return the user's name, role and rights."""
        user = self.request.user
        limited = reach_of(user).teams is not None
        return {
            "user": self.actor,
            "role": role_of(user),
            "teams": [team.name for team in own_teams(user)] if limited else None,
            "may_write_python": may(user, WRITE_PYTHON),
        }


urlpatterns = [
    path("applications/<str:name>/team/", ApplicationTeamView.as_view(), name="application-team"),
    *endpoints(TEAMS, TeamBody),
    *endpoints(TOKENS, TokenBody, NewTokenBody),
    *endpoints(GROUP_ROLES, GroupRoleBody),
    path("me/", MeView.as_view(), name="me"),
]
