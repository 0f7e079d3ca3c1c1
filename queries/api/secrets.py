"""Secrets, their grants and other admin permissions, over REST."""

from typing import Any

from django.urls import path
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.admin_objects import endpoints
from queries.api.base import ApiView
from queries.api.bodies import Body, serializer_for
from queries.api.methods import answers, shown
from queries.api.schema import NotShown
from queries.domain import secrets as bindings
from queries.domain.catalogs import CatalogAuth, CatalogType
from queries.models.catalogs import Catalog
from queries.models.grants import GivenRoot, SecretBinding
from queries.roles import ADMINISTER
from queries.selectors.secrets import Naming, Secret, secrets
from queries.services.catalogs import CATALOGS
from queries.services.definitions.surroundings import Outside, Proposal, proposals
from queries.services.secrets import ALLOWED_PATHS, BINDINGS


@serializer_for(
    SecretBinding,
    "id=pk secret holder_kind holder hosts given_at given_by",
    holder_kind=bindings.HolderKind,
)
class BindingBody(Body):
    """A secret that an application, a channel or a catalog is allowed to use; never its value.

    holder: The name of the application, channel or catalog, which need not exist yet.
    hosts: Where it can be sent: host:port, host, *.domain, a chat service, or * for any host.
    """

    hosts = serializers.ListField(child=serializers.CharField())


@serializer_for(Naming, "about field=use.field refused")
class NamingBody(Body):
    """A use of a secret.

    about: A query, an application, a channel or a catalog, with its name.
    refused: Why this use is not allowed; empty if it is.
    """


@serializer_for(Secret, "name there bindings namings")
class SecretBody(Body):
    """A secret by its name, never its value.

    there: Whether this host has the secret.
    namings: Where it is used, in the newest definitions.
    """


class SecretsBody(Body):
    """All secrets that exist, are used or are bound, sorted by name."""

    results = SecretBody(many=True)
    not_shown = NotShown(many=True, required=False)


@serializer_for(Outside, "about field text")
class OutsideBody(Body):
    """A location in a definition that is outside the allowed paths."""


@serializer_for(Proposal, "application path=root places")
class ProposalBody(Body):
    """The path that an application's locations require.

    path: Empty if no path would allow them: the locations are Headgate's own, or not valid.
    """


class ProposalsBody(Body):
    """Paths required by locations in use; none is allowed automatically."""

    results = ProposalBody(many=True)


@serializer_for(GivenRoot, "id=pk application path=root given_at given_by")
class RootBody(Body):
    """A folder or URL prefix in which one application is allowed to store data."""


def _teams(row: Catalog) -> list[str]:
    return [team.name for team in row.teams.all()]


@serializer_for(
    Catalog,
    "name type address warehouse properties secret auth vended teams "
    "created_at created_by changed_at changed_by",
    type=CatalogType,
    auth=CatalogAuth,
    teams=_teams,
)
class CatalogBody(Body):
    """An Iceberg catalog that applications can use by its name.

    address: The URI of a REST catalog.
    secret: The name of its secret, never the value; empty for none.
    auth: Whether the secret is an OAuth2 client credential or a token.
    vended: Whether the catalog may issue credentials for its tables' storage.
    teams: The teams whose applications can use it; empty for every application.
    """


class SecretsView(ApiView):
    """All secrets, sorted by name."""

    @answers("list_secrets", SecretsBody, role=ADMINISTER)
    def get(self) -> Response:
        """List secrets, sorted by name, with their uses and bindings; admins only."""
        return Response(shown(secrets(), SecretBody))


class ProposalsView(ApiView):
    """Required paths."""

    @answers("list_allowed_path_proposals", ProposalsBody, role=ADMINISTER)
    def get(self) -> dict[str, Any]:
        """List the paths that locations outside all allowed paths require; admins only."""
        return {"results": proposals()}


urlpatterns = [
    path("secrets/", SecretsView.as_view(), name="secrets"),
    *endpoints(BINDINGS, BindingBody),
    path("allowed-paths/proposals/", ProposalsView.as_view(), name="allowed-path-proposals"),
    *endpoints(ALLOWED_PATHS, RootBody),
    *endpoints(CATALOGS, CatalogBody),
]
