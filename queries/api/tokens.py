"""Who am I, and tokens: one's own to see and revoke, everybody's and new ones for admins."""

from typing import Any, ClassVar

from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.definitions import inputs
from queries.api.paging import PAGING, page_of_rows
from queries.api.schema import describe, listed
from queries.models.tokens import AccessToken
from queries.roles import ADMINISTER, Role, role_of
from queries.selectors.console.accounts import owner_named, token_seen_by, tokens_seen_by
from queries.services.console import tokens

Body = serializers.Serializer[Any]


class MeBody(Body):
    """The user of a request."""

    user = serializers.CharField()
    role = serializers.ChoiceField([str(role) for role in Role])


class TokenBody(Body):
    """A token, without its text."""

    id = serializers.UUIDField(source="uuid")
    user = serializers.CharField(source="user.username")
    name = serializers.CharField()
    begins_with = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField(source="created")
    created_by = serializers.CharField()
    expires_at = serializers.DateTimeField(source="expiry", allow_null=True)

    def get_begins_with(self, token: AccessToken) -> str:
        """Return enough of the token to tell it from others."""
        return str(token.token_key)[:8]


class NewTokenBody(TokenBody):
    """A new token with its text, which is shown only once."""

    token = serializers.CharField()


class MeView(ApiView):
    """The user behind the request."""

    @describe(operation_id="get_me", responses=MeBody)
    def get(self, request: Request) -> Response:
        """Return the user's name and role."""
        return Response({"user": self.actor, "role": role_of(request.user)})


class TokensView(ApiView):
    """Tokens that are there."""

    permissions: ClassVar[dict[str, str]] = {"POST": ADMINISTER}

    @describe(
        operation_id="list_tokens",
        parameters=[
            OpenApiParameter("user", OpenApiTypes.STR, description="Of this user; admins only."),
            *PAGING,
        ],
        responses=listed(TokenBody),
    )
    def get(self, request: Request) -> Response:
        """List your tokens; an admin sees all tokens, or those of `user`."""
        rows = tokens_seen_by(request.user)
        if name := request.query_params.get("user", "").replace("\x00", ""):
            rows = rows.filter(user__username=name)
        return page_of_rows(request, rows, lambda row: TokenBody(row).data, by="uuid")

    @describe(
        operation_id="create_token", request=inputs.TokenCreate, responses={201: NewTokenBody}
    )
    def post(self, request: Request) -> Response:
        """Create a token for a user; its text is returned only once."""
        sent = self.read(inputs.TokenCreate, request.data)
        row, text = tokens.create_token(
            user=owner_named(sent["user"]),
            name=sent["name"],
            actor=self.actor,
            days=sent["days"],
        )
        body = {**TokenBody(row).data, "token": text}
        location = reverse("api:token", args=[row.uuid])
        return Response(
            body, status=201, headers={"Location": location, "Cache-Control": "no-store"}
        )


class TokenView(ApiView):
    """One token."""

    @describe(operation_id="get_token", responses=TokenBody)
    def get(self, request: Request, uuid: Any) -> Response:
        """Return a token, without its text."""
        return Response(TokenBody(token_seen_by(request.user, uuid)).data)

    @describe(operation_id="revoke_token", responses={204: None})
    def delete(self, request: Request, uuid: Any) -> Response:
        """Revoke your own token; an admin can revoke any."""
        tokens.revoke_token(token=token_seen_by(request.user, uuid))
        return Response(status=204)
