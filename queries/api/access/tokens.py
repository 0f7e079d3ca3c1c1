"""The current user, and tokens: users can see their own tokens, admins can see all tokens."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.definitions import inputs
from queries.api.derived import Body, described, shows
from queries.api.methods import Sent, answers, creates, lists
from queries.api.paging import word
from queries.models.tokens import AccessToken, Scope
from queries.roles import ADMINISTER, WRITE_PYTHON, Role, may, reach_of, role_of
from queries.selectors.access.teams import own_teams
from queries.selectors.console.accounts import owner_named, token_seen_by, tokens_seen_by
from queries.services.console import tokens


@described
class MeBody(Body):
    """The user of a request, and what the request is allowed to do.

    role: The user's role, as limited by the token's scope.
    teams: Only applications of these teams or without a team can be acted on; null: no limit.
    may_write_python: Whether the request is allowed to load code into drivers.
    """

    user = serializers.CharField()
    role = serializers.ChoiceField([str(role) for role in Role])
    teams = serializers.ListField(child=serializers.CharField(), allow_null=True)
    may_write_python = serializers.BooleanField()


@shows(
    AccessToken,
    "id=uuid user=user.username name begins_with scope team=team.name applications "
    "created_at=created created_by expires_at=expiry last_used_at",
    scope=Scope,
)
class TokenBody(Body):
    """A token, without its text.

    team: The token can act only on this team's applications; null: no such limit.
    applications: The token can act only on these applications; null: no such limit.
    last_used_at: Accurate to the minute.
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
    """A new token with its text, which is shown only once."""

    token = serializers.CharField()


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


class TokensView(ApiView):
    """All tokens."""

    @lists(
        "list_tokens",
        TokenBody,
        by="uuid",
        parameters=[word("user", about="Only this user's tokens; admins only.")],
    )
    def get(self) -> QuerySet[AccessToken]:
        """List your tokens; an admin sees all tokens, or those of `user`."""
        rows = tokens_seen_by(self.request.user)
        name = self.asked("user")
        return rows.filter(user__username=name) if name else rows

    @creates("create_token", NewTokenBody, inputs.TokenCreate, role=ADMINISTER)
    def post(self, sent: Sent) -> Response:
        """Create a token for a user; its text is returned only once."""
        sent["user"] = owner_named(sent["user"])
        row, text = tokens.create_token(**self.by, **sent)
        location = reverse("api:token", args=[row.uuid])
        return Response(
            {**TokenBody(row).data, "token": text},
            status=201,
            headers={"Location": location, "Cache-Control": "no-store"},
        )


class TokenView(ApiView):
    """One token."""

    @answers("get_token", TokenBody)
    def get(self, uuid: UUID) -> AccessToken:
        """Return a token, without its text."""
        return token_seen_by(self.request.user, uuid)

    @answers("revoke_token", None)
    def delete(self, uuid: UUID) -> None:
        """Revoke your own token; admins can revoke any token."""
        tokens.revoke_token(token=token_seen_by(self.request.user, uuid), **self.by)
