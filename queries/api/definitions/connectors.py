"""The connectors available to drivers."""

from typing import Any

from rest_framework import serializers

from queries.api.base import ApiView
from queries.api.derived import Body, shows
from queries.api.methods import answers
from queries.selectors.definitions.connectors import Connector, Jar, connectors


@shows(Jar, "file artifact version bytes")
class JarBody(Body):
    """One file of a connector.

    artifact: The file's name without its version.
    version: Empty if the file name has none.
    """


@shows(
    Connector,
    "name ready folder bytes jars applications about=declared.about sources=declared.sources "
    "tables=declared.tables sinks=declared.sinks tested_with=declared.tested_with note way_out",
)
class ConnectorBody(Body):
    """A connector that is installed, or used by an application without being installed.

    ready: Whether drivers can use it.
    bytes: The size of its jars.
    applications: Applications that use it.
    sources: Source formats declared in its connector.toml; likewise for tables and sinks.
    tested_with: Spark versions that it was tested with.
    note: A warning, for example if it was not tested with this Spark version; can be empty.
    way_out: The command that installs it; can be empty.
    """

    sources = serializers.ListField(child=serializers.CharField(), source="declared.sources")
    tables = serializers.ListField(child=serializers.CharField(), source="declared.tables")
    sinks = serializers.ListField(child=serializers.CharField(), source="declared.sinks")
    tested_with = serializers.ListField(
        child=serializers.CharField(), source="declared.tested_with"
    )

    def get_way_out(self, connector: Any) -> str:
        """Return how to install it, or "" if it is installed."""
        return "" if connector.ready else connector.way_out


class ConnectorsBody(Body):
    """All connectors, by name."""

    results = ConnectorBody(many=True)


class ConnectorsView(ApiView):
    """The connectors of the installation."""

    @answers("list_connectors", ConnectorsBody)
    def get(self) -> dict[str, Any]:
        """List the connectors that are installed or used, with their jars and applications."""
        return {"results": connectors()}
