"""Request and response bodies for secret bindings and data roots."""

from typing import Any

from rest_framework import serializers

from queries.api.derived import Body, described, shows, takes
from queries.api.schema import NotShown
from queries.domain.definitions.data_roots import GivenRootForm
from queries.domain.secrets import bindings
from queries.models.grants import GivenRoot, SecretBinding
from queries.selectors.secrets import Naming, Secret
from queries.services.definitions.places_in_use import Outside, Proposal

Form = serializers.Serializer[Any]


@shows(
    SecretBinding,
    "id=pk secret holder_kind holder hosts given_at given_by",
    holder_kind=bindings.HolderKind,
)
class BindingBody(Body):
    """A secret that an application or a channel is allowed to use; never its value.

    holder: The name of the application or channel, which need not exist yet.
    hosts: Where it can be sent: host:port, host, *.domain, a chat service, or * for any host.
    """

    hosts = serializers.ListField(child=serializers.CharField())


@shows(Naming, "about field=use.field refused")
class NamingBody(Body):
    """A use of a secret.

    about: A query, an application or a channel, with its name.
    refused: Why this use is not allowed; empty if it is.
    """


@shows(Secret, "name there bindings namings")
class SecretBody(Body):
    """A secret by its name, never its value.

    there: Whether this host has the secret.
    namings: Where it is used, in the newest definitions.
    """


class SecretsBody(Body):
    """All secrets that exist, are used or are bound, sorted by name."""

    results = SecretBody(many=True)
    not_shown = NotShown(many=True, required=False)


@shows(Outside, "about field text")
class OutsideBody(Body):
    """A location in a definition that is outside the roots."""


@shows(Proposal, "application root places")
class ProposalBody(Body):
    """A root that would allow an application's locations.

    root: Empty if no root would allow them: the locations are Headgate's own, or not valid.
    """


class ProposalsBody(Body):
    """Roots needed for locations in use; none is assigned automatically."""

    results = ProposalBody(many=True)


@described
@takes(bindings.BindingForm)
class BindingForm(Form):
    """A complete binding.

    secret: env:NAME or file:NAME.
    holder: The name of the application or channel.
    hosts: host:port, host, *.domain, a chat service by name, or * for any host.
    """


@shows(GivenRoot, "id=pk application root given_at given_by")
class RootBody(Body):
    """A folder or URL prefix in which one application is allowed to store data."""


@described
@takes(GivenRootForm)
class RootForm(Form):
    """A root for an application.

    application: Its name.
    root: An absolute path, or a URL such as s3a://bucket/orders.
    """
