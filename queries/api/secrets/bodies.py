"""What the API says of bindings and roots, and what it takes for them."""

from typing import Any

from rest_framework import serializers

from queries.api.derived import Body, described, shows, takes
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
    """A secret that an application or a channel may name; never its value.

    holder: The name of the application or channel, which may not be made yet.
    hosts: Where it may go: host:port, host, *.domain, a chat service, or * for anywhere.
    given_by: Empty for what the upgrade found in use.
    """

    hosts = serializers.ListField(child=serializers.CharField())


@shows(Naming, "about field=use.field refused")
class NamingBody(Body):
    """Who names a secret.

    about: A query, an application or a channel, with its name.
    refused: Why it may not use it; empty where it may.
    """


@shows(Secret, "name there bindings namings")
class SecretBody(Body):
    """A secret by its name, never its value.

    there: This host has it.
    namings: Who names it, in the newest definitions.
    """


class SecretsBody(Body):
    """Every secret that is there, named or bound, by name."""

    results = SecretBody(many=True)


@shows(Outside, "about field text")
class OutsideBody(Body):
    """A place that a definition names outside of the roots."""


@shows(Proposal, "application root places")
class ProposalBody(Body):
    """A root that would allow an application what it names.

    root: Empty where nothing would: the places are Headgate's own, or no locations.
    """


class ProposalsBody(Body):
    """What would have to be given for what is in use; nothing is given by itself."""

    results = ProposalBody(many=True)


@described
@takes(bindings.BindingForm)
class BindingForm(Form):
    """A binding, whole.

    secret: env:NAME or file:NAME.
    holder: The name of the application or channel.
    hosts: host:port, host, *.domain, a chat service by its name, or * for anywhere.
    """


@shows(GivenRoot, "id=pk application root given_at given_by")
class RootBody(Body):
    """A folder or URL prefix in which one application's data may lie."""


@described
@takes(GivenRootForm)
class RootForm(Form):
    """A root for an application.

    application: Its name.
    root: An absolute path, or a URL such as s3a://bucket/orders.
    """
