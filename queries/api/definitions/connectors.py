"""The connectors that drivers can be given."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.schema import describe
from queries.selectors.definitions.connectors import connectors

Body = serializers.Serializer[Any]


class JarBody(Body):
    """One file of a connector."""

    file = serializers.CharField()
    artifact = serializers.CharField(help_text="The file's name without its version.")
    version = serializers.CharField(help_text="Empty if the file name has none.")
    bytes = serializers.IntegerField()


class ConnectorBody(Body):
    """A connector that is installed, or that an application names although it is not."""

    name = serializers.CharField()
    ready = serializers.BooleanField(help_text="Ready for drivers.")
    folder = serializers.CharField()
    bytes = serializers.IntegerField(help_text="The size of its jars.")
    jars = JarBody(many=True)
    applications = serializers.ListField(
        child=serializers.CharField(), help_text="Applications that use it."
    )
    way_out = serializers.SerializerMethodField(
        help_text="The command that installs it; may be empty."
    )

    def get_way_out(self, connector: Any) -> str:
        """Return what puts it into place, "" where it is there."""
        return "" if connector.ready else connector.way_out


class ConnectorsBody(Body):
    """All connectors, by name."""

    results = ConnectorBody(many=True)


class ConnectorsView(ApiView):
    """The connectors of the installation."""

    @describe(operation_id="list_connectors", responses=ConnectorsBody)
    def get(self, request: Request) -> Response:
        """List the connectors that are installed or named, with jars and applications."""
        return Response(ConnectorsBody({"results": connectors()}).data)
