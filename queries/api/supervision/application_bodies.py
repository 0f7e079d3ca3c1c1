"""What the API says of applications: definition, living driver, pools and what each holds."""

from dataclasses import asdict
from typing import Any

from rest_framework import serializers

from queries.api.etags import etag
from queries.api.links import application_links
from queries.api.schema import ApplicationSpecField, ObjectField
from queries.models.definitions import Query
from queries.selectors.supervision.applications import ApplicationDetail

Body = serializers.Serializer[Any]


class DriverBody(Body):
    """The living driver process of an application."""

    id = serializers.IntegerField(source="pk")
    epoch = serializers.IntegerField()
    state = serializers.CharField()
    state_reason = serializers.CharField()
    state_since = serializers.DateTimeField()
    host = serializers.CharField()
    pid = serializers.IntegerField(allow_null=True)
    jvm_pid = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField()
    spark_version = serializers.CharField()
    java_version = serializers.CharField()
    spark_application_id = serializers.CharField()
    ui_url = serializers.CharField()


class PoolBody(Body):
    """A FAIR scheduler pool and the queries that it holds."""

    name = serializers.CharField(source="pool.name")
    weight = serializers.IntegerField(source="pool.weight")
    min_share = serializers.IntegerField(source="pool.min_share")
    mode = serializers.CharField(source="pool.mode")
    queries = serializers.SerializerMethodField()

    def get_queries(self, holding: Any) -> list[str]:
        """Return the names of the living queries whose newest revision names the pool."""
        return _names(holding.queries)


class HeartbeatField(ObjectField):
    """A heartbeat as the driver sent it."""

    def to_representation(self, value: Any) -> Any:
        """Return the heartbeat's JSON form."""
        return asdict(value)


class TelemetryBody(Body):
    """The driver's newest heartbeat: what it says of its own telemetry."""

    at = serializers.DateTimeField()
    heartbeat = HeartbeatField(help_text="Counters of the queues and timings of users' listeners.")


class ApplicationBody(Body):
    """An application: its definition (masked), its driver, and what it holds."""

    name = serializers.CharField(source="application.name")
    own = serializers.BooleanField(source="application.own", help_text="Created for one query.")
    revision = serializers.IntegerField(source="newest.number", allow_null=True, default=None)
    running_revision = serializers.IntegerField(
        source="driver.application_revision.number", allow_null=True, default=None
    )
    needs_restart = serializers.ListField(
        child=serializers.CharField(), help_text="Why: revision, pools, code."
    )
    driver = DriverBody(allow_null=True)
    queries = serializers.SerializerMethodField()
    pools = PoolBody(many=True)
    failures = serializers.IntegerField(source="application.failures")
    next_attempt_at = serializers.DateTimeField(
        source="application.next_attempt_at", allow_null=True
    )
    hold = serializers.CharField(source="application.hold")
    hold_reason = serializers.CharField(source="application.hold_reason")
    telemetry = TelemetryBody(allow_null=True)
    created_at = serializers.DateTimeField(source="application.created_at")
    etag = serializers.SerializerMethodField()
    spec = ApplicationSpecField(source="newest.spec", default=dict)
    links = serializers.SerializerMethodField()

    def get_queries(self, detail: ApplicationDetail) -> list[str]:
        """Return the names of the living queries."""
        return _names(detail.queries)

    def get_etag(self, detail: ApplicationDetail) -> str:
        """Return the ETag of the definition."""
        return etag(detail.application, detail.newest.number if detail.newest else None)

    def get_links(self, detail: ApplicationDetail) -> dict[str, str]:
        """Return where to go on."""
        return application_links(detail.application)


def _names(queries: list[Query]) -> list[str]:
    return [query.name for query in queries]
