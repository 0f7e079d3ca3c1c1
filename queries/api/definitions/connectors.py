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
    version: Empty where the file's name holds none.
    """


@shows(Connector, "name ready folder bytes jars applications way_out")
class ConnectorBody(Body):
    """A connector that stands ready, or that an application names although it does not.

    ready: Drivers can be given it.
    bytes: The size of its jars.
    applications: Living applications that name it.
    way_out: What puts it into place; may be empty.
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
        """List the connectors that stand ready or are named, with jars and applications."""
        return {"results": connectors()}
