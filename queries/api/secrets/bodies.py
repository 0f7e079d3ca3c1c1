"""What the API says of bindings and roots, and what it takes for them."""

from typing import Any

from rest_framework import serializers

from queries.api.derived import Body, described, shows, takes
from queries.domain.definitions.data_roots import GivenRootForm
from queries.domain.secrets import bindings
from queries.models.grants import GivenRoot, SecretBinding

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
