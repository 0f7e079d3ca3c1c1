"""Response bodies for applications: definition, running driver, pools and their queries."""

from dataclasses import asdict
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from listeners.selectors import DriverTelemetry
from queries.api.definitions.etags import etag
from queries.api.derived import Body, described, serializer_for
from queries.api.links import application_links
from queries.api.operation_bodies import MaskedText
from queries.api.reasons import DetailCodeField, PhraseField
from queries.api.schema import ApplicationSpecField, LabelsField, ObjectField
from queries.domain.states import Desired, Phase
from queries.models.applications import Script
from queries.models.definitions import Query
from queries.models.drivers import Driver
from queries.selectors.scripts import Asking, asking
from queries.selectors.supervision.applications import ApplicationDetail, PoolHolding


@described
class ExecutorBody(Body):
    """One executor of a driver on a cluster, as reported by Spark.

    address: host:port.
    reason: Why it was removed, as reported by Spark.
    """

    id = serializers.CharField()
    address = serializers.CharField()
    cores = serializers.IntegerField()
    active = serializers.BooleanField()
    added_at = serializers.DateTimeField()
    removed_at = serializers.DateTimeField(allow_null=True, default=None)
    reason = MaskedText(default="")


@serializer_for(
    Driver,
    "id=pk kind epoch state state_reason state_reason_code=state_reason state_since host pid "
    "jvm_pid created_at took_over_at spark_version java_version spark_application_id executors",
)
class DriverBody(Body):
    """A driver process of an application.

    kind: SERVICE runs the queries; STANDBY waits to take over.
    took_over_at: When it took over as a standby; null if it never was one.
    executors: On a cluster: active executors, then the newest lost ones; empty with local[N].
    ui_url: Path in the console that opens the driver's Spark UI; null if it has none.
    """

    state_reason = PhraseField()
    executors = ExecutorBody(many=True)
    ui_url = serializers.SerializerMethodField()

    def get_ui_url(self, driver: Driver) -> str | None:
        """Return the URL of the page that leads to the Spark UI."""
        return reverse("spark-ui", args=[driver.application.name]) if driver.ui_port else None


@serializer_for(PoolHolding, "pool.name pool.weight pool.min_share pool.mode queries")
class PoolBody(Body):
    """A FAIR scheduler pool and its queries."""

    def get_queries(self, holding: Any) -> list[str]:
        """Return the names of the existing queries whose newest revision uses the pool."""
        return _names(holding.queries)


class HeartbeatField(ObjectField):
    """A heartbeat as sent by the driver."""

    def to_representation(self, value: Any) -> Any:
        """Return the heartbeat's JSON form."""
        return asdict(value)


@serializer_for(DriverTelemetry, "at heartbeat")
class TelemetryBody(Body):
    """The driver's newest heartbeat: the state of its own telemetry.

    heartbeat: Counters of the listener queues, and timings of users' listeners.
    """

    heartbeat = HeartbeatField()


@serializer_for(Asking, "identity query checkpoint missing")
class QuestionBody(Body):
    """A script's new query while others are missing: an author decides whether it is one of them.

    identity: The new query's identity, which the answer must repeat.
    checkpoint: The checkpoint that the script specifies for it; empty if there is none.
    missing: The missing queries that it could be.
    """

    identity = serializers.CharField()
    checkpoint = serializers.CharField()
    missing = serializers.ListField(child=serializers.CharField())


@serializer_for(
    Script,
    "desired phase phase_reason phase_reason_code=phase_reason phase_detail phase_since notes "
    "question",
    desired=Desired,
    phase=Phase,
)
class ScriptBody(Body):
    """The script of an application of kind `script`: its desired state and its current state.

    notes: Requests of the script that were ignored or rejected.
    """

    phase_reason = PhraseField()
    question = serializers.SerializerMethodField()
    notes = serializers.ListField(child=MaskedText())

    @extend_schema_field(QuestionBody(allow_null=True))  # type: ignore[untyped-decorator]
    def get_question(self, script: Script) -> Any:
        """Return the question that the script is waiting for an author to answer, or None."""
        asked = asking(script)
        return QuestionBody(asked).data if asked else None


@serializer_for(
    ApplicationDetail,
    "application.name application.own team=application.team.name revision=newest.number "
    "running_revision=driver.application_revision.number needs_restart driver standby script "
    "queries pools "
    "application.failures application.next_attempt_at application.hold "
    "application.hold_reason hold_reason_code application.labels telemetry "
    "application.created_at etag spec links",
)
class ApplicationBody(Body):
    """An application: its definition (masked), its driver, and its queries and pools.

    own: Whether it was created for a single query.
    standby: The driver without queries that waits to take over; null if there is none.
    script: Null if the application does not run a script.
    team: The team that owns it; null if it is open to everyone.
    needs_restart: What changed since the driver started: revision, pools, code, Headgate's release.
    """

    hold_reason_code = DetailCodeField(source="application.hold_reason")
    labels = LabelsField(source="application.labels")
    spec = ApplicationSpecField(source="newest.spec", default=dict)

    def get_queries(self, detail: ApplicationDetail) -> list[str]:
        """Return the names of the queries that are not deleted."""
        return _names(detail.queries)

    def get_etag(self, detail: ApplicationDetail) -> str:
        """Return the ETag of the definition."""
        return etag(detail.application, detail.newest.number if detail.newest else None)

    def get_links(self, detail: ApplicationDetail) -> dict[str, str]:
        """Return the links."""
        return application_links(detail.application)


def _names(queries: list[Query]) -> list[str]:
    return [query.name for query in queries]
