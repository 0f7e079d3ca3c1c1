"""The connectors that drivers can be given."""

from typing import Any

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


@shows(Connector, "name ready folder bytes jars applications way_out")
class ConnectorBody(Body):
    """A connector that is installed, or that an application names although it is not.

    ready: Ready for drivers.
    bytes: The size of its jars.
    applications: Applications that use it.
    way_out: The command that installs it; may be empty.
    """

    def get_way_out(self, connector: Any) -> str:
        """Return what puts it into place, "" where it is there."""
        return "" if connector.ready else connector.way_out


class ConnectorsBody(Body):
    """All connectors, by name."""

    results = ConnectorBody(many=True)


class ConnectorsView(ApiView):
    """The connectors of the installation."""

    @answers("list_connectors", ConnectorsBody)
    def get(self) -> dict[str, Any]:
        """List the connectors that are installed or named, with jars and applications."""
        return {"results": connectors()}
