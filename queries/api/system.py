"""The system's own health over REST, with the Spark versions and connectors of this host."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rest_framework import serializers

from listeners.loops.backlogs import Backlog, backlogs
from queries.api.base import ApiView
from queries.api.bodies import Body, serializer_for
from queries.api.methods import answers
from queries.domain.errors import Missing
from queries.domain.sparks import SPARKS, Spark, spark_named
from queries.domain.system import Part, PartState, SystemHealth
from queries.roles import ADMINISTER
from queries.selectors.definitions.definitions import Connector, Jar, connectors
from queries.selectors.definitions.sparks import SparkHere, sparks_here
from queries.services.downloads import remove_connector, remove_spark
from queries.services.system.health import system_health


@serializer_for(Jar, "file artifact version bytes")
class JarBody(Body):
    """One file of a connector.

    artifact: The file's name without its version.
    version: Empty if the file name has none.
    """


@serializer_for(
    Connector,
    "name spark ready folder bytes jars applications about=declared.about sources=declared.sources "
    "tables=declared.tables sinks=declared.sinks tested_with=declared.tested_with note differing "
    "way_out",
)
class ConnectorBody(Body):
    """A connector that is installed, or used by an application without being installed.

    spark: The Spark version of its jars. ready: Whether drivers can use it. bytes: The size of its
    jars. applications: Applications on this Spark version that use it. sources: Source formats
    declared in its connector.toml; likewise for tables and sinks. tested_with: Spark versions that
    it was tested with. note: A warning, for example if it was not tested with this Spark version;
    can be empty. differing: A sentence for each jar that differs from the downloaded one. way_out:
    The command that installs it; can be empty.
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
    """The connectors of this host."""

    @answers("list_connectors", ConnectorsBody)
    def get(self) -> dict[str, Any]:
        """List the connectors that are installed or used, with their jars and applications."""
        return {"results": connectors()}


class ConnectorView(ApiView):
    """One connector for a Spark version."""

    @answers("remove_connector", None, role=ADMINISTER)
    def delete(self, spark: str, name: str) -> None:
        """Remove a connector that nothing uses from this host; admins only."""
        remove_connector(name, _version(spark), **self.by)


@serializer_for(
    SparkHere,
    "version ours ready exact folder bytes applications drivers differing way_out",
)
class SparkBody(Body):
    """A Spark version that applications can choose.

    ours: Whether it is Headgate's own version, which cannot be removed. ready: Whether drivers on
    this host can run on it. exact: The full version; empty if it is not installed. folder: Empty
    for Headgate's own version. bytes: Its size on disk; 0 for Headgate's own version. applications:
    Applications that use it. drivers: Number of drivers that run on it, on all hosts. differing: A
    sentence for each jar that differs from the downloaded one. way_out: The command that installs
    it; can be empty.
    """

    def get_way_out(self, spark: Any) -> str:
        """Return how to install it, or "" if it is installed."""
        return "" if spark.ready else spark.way_out


class SparksBody(Body):
    """All Spark versions, newest first."""

    results = SparkBody(many=True)


class SparksView(ApiView):
    """The Spark versions that applications can choose."""

    @answers("list_sparks", SparksBody)
    def get(self) -> dict[str, Any]:
        """List the Spark versions, with their state on this host and their users."""
        return {"results": sparks_here()}


class SparkView(ApiView):
    """One Spark version."""

    @answers("remove_spark", None, role=ADMINISTER)
    def delete(self, version: str) -> None:
        """Remove an unused Spark version from this host; admins only."""
        remove_spark(_version(version), **self.by)


def _version(text: str) -> Spark:
    if (spark := spark_named(text)) is None:
        raise Missing(
            f"There is no version {text!r} of Spark.", way_out=f"Use {', '.join(SPARKS)}."
        )
    return spark


@dataclass(frozen=True, slots=True)
class _SystemReport:
    """The parts of the system, and its bulk work."""

    health: SystemHealth
    backlogs: list[Backlog]

    @property
    def at(self) -> datetime:
        return self.health.at

    @property
    def ok(self) -> bool:
        return self.health.ok

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.health.parts


class PartBody(Body):
    """One part of the system."""

    name = serializers.CharField()
    state = serializers.ChoiceField([str(state) for state in PartState])
    sentence = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True, help_text="When the problem began.")


class BacklogBody(Body):
    """One kind of background work, as of its last run."""

    name = serializers.CharField()
    rows = serializers.IntegerField(help_text="Number of items waiting.")
    since = serializers.DateTimeField(
        allow_null=True, help_text="When the oldest item began to wait."
    )
    ran_at = serializers.DateTimeField(allow_null=True, help_text="When its last run ended.")


class SystemBody(Body):
    """All parts of the system, and background work."""

    at = serializers.DateTimeField()
    ok = serializers.BooleanField()
    parts = PartBody(many=True)
    backlogs = BacklogBody(many=True)


class SystemView(ApiView):
    """The system's own health."""

    @answers("get_system", SystemBody)
    def get(self) -> _SystemReport:
        """Return the state of every part, and the backlog of bulk work."""
        return _SystemReport(system_health(self.now), backlogs())
