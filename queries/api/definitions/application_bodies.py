"""What the API says of applications: definition, living driver, pools and what each holds."""

from dataclasses import asdict
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from listeners.selectors import DriverTelemetry
from queries.api.definitions.etags import etag
from queries.api.derived import Body, shows
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


@shows(
    Driver,
    "id=pk epoch state state_reason state_reason_code=state_reason state_since host pid jvm_pid "
    "created_at spark_version java_version spark_application_id",
)
class DriverBody(Body):
    """The living driver process of an application.

    ui_url: Path in the console that opens its Spark UI; null where it has none.
    """

    state_reason = PhraseField()
    ui_url = serializers.SerializerMethodField()

    def get_ui_url(self, driver: Driver) -> str | None:
        """Return the address of the page that leads there."""
        return reverse("spark-ui", args=[driver.application.name]) if driver.ui_port else None


@shows(PoolHolding, "pool.name pool.weight pool.min_share pool.mode queries")
class PoolBody(Body):
    """A FAIR scheduler pool and the queries that it holds."""

    def get_queries(self, holding: Any) -> list[str]:
        """Return the names of the living queries whose newest revision names the pool."""
        return _names(holding.queries)


class HeartbeatField(ObjectField):
    """A heartbeat as the driver sent it."""

    def to_representation(self, value: Any) -> Any:
        """Return the heartbeat's JSON form."""
        return asdict(value)


@shows(DriverTelemetry, "at heartbeat")
class TelemetryBody(Body):
    """The driver's newest heartbeat: what it says of its own telemetry.

    heartbeat: Counters of the queues and timings of users' listeners.
    """

    heartbeat = HeartbeatField()


@shows(Asking, "identity query checkpoint missing")
class QuestionBody(Body):
    """A query that came in a script while others went: an author says what it is.

    identity: What it is known by; the answer repeats it.
    checkpoint: That the script names for it; empty for none.
    missing: The queries that it may be.
    """

    identity = serializers.CharField()
    checkpoint = serializers.CharField()
    missing = serializers.ListField(child=serializers.CharField())


@shows(
    Script,
    "desired phase phase_reason phase_reason_code=phase_reason phase_detail phase_since notes "
    "question",
    desired=Desired,
    phase=Phase,
)
class ScriptBody(Body):
    """The script of an application of kind script: what is wanted of it, and what it does.

    notes: What it asks for and does not get, and what of it is refused.
    """

    phase_reason = PhraseField()
    question = serializers.SerializerMethodField()
    notes = serializers.ListField(child=MaskedText())

    @extend_schema_field(QuestionBody(allow_null=True))  # type: ignore[untyped-decorator]
    def get_question(self, script: Script) -> Any:
        """Return what an author has to say before it goes on; null for nothing."""
        asked = asking(script)
        return QuestionBody(asked).data if asked else None


@shows(
    ApplicationDetail,
    "application.name application.own team=application.team.name revision=newest.number "
    "running_revision=driver.application_revision.number needs_restart driver script queries pools "
    "application.failures application.next_attempt_at application.hold "
    "application.hold_reason hold_reason_code application.labels telemetry "
    "application.created_at etag spec links",
)
class ApplicationBody(Body):
    """An application: its definition (masked), its driver, and what it holds.

    own: Created for one query.
    script: Null where its queries are defined.
    team: Whose it is; null: everybody's.
    needs_restart: Why: revision, pools, code.
    """

    hold_reason_code = DetailCodeField(source="application.hold_reason")
    labels = LabelsField(source="application.labels")
    spec = ApplicationSpecField(source="newest.spec", default=dict)

    def get_queries(self, detail: ApplicationDetail) -> list[str]:
        """Return the names of the living queries."""
        return _names(detail.queries)

    def get_etag(self, detail: ApplicationDetail) -> str:
        """Return the ETag of the definition."""
        return etag(detail.application, detail.newest.number if detail.newest else None)

    def get_links(self, detail: ApplicationDetail) -> dict[str, str]:
        """Return the links."""
        return application_links(detail.application)


def _names(queries: list[Query]) -> list[str]:
    return [query.name for query in queries]
