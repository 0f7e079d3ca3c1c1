"""What the API says of queries: one form for the list and for each of them."""

from typing import Any

from rest_framework import serializers

from queries.api.etags import etag
from queries.api.links import query_links
from queries.api.schema import ObjectField, QuerySpecField
from queries.domain.states import Desired, Phase, Verdict
from queries.models.definitions import Checkpoint
from queries.models.drivers import Run
from queries.selectors.query_lines import QueryLine

Body = serializers.Serializer[Any]


class HealthBody(Body):
    """The verdict of a running query with its evidence."""

    verdict = serializers.ChoiceField([str(verdict) for verdict in Verdict])
    reason = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)


class CurrentRunBody(Body):
    """The run that is open now, and the driver that hosts it."""

    id = serializers.IntegerField(source="pk")
    driver = serializers.IntegerField(source="driver_id")
    epoch = serializers.IntegerField()
    pid = serializers.IntegerField(
        source="driver.pid", allow_null=True, help_text="The driver's Python."
    )
    jvm_pid = serializers.IntegerField(source="driver.jvm_pid", allow_null=True)
    host = serializers.CharField(source="driver.host")
    started_at = serializers.DateTimeField(allow_null=True)
    spark_run_id = serializers.CharField(allow_null=True)


class ProgressLineBody(Body):
    """The newest executed batch in numbers."""

    batch_id = serializers.IntegerField()
    timestamp = serializers.DateTimeField()
    num_input_rows = serializers.IntegerField()
    input_rows_per_second = serializers.FloatField(allow_null=True)
    processed_rows_per_second = serializers.FloatField(allow_null=True)
    batch_duration_ms = serializers.IntegerField()
    duration_ms = ObjectField()
    watermark = serializers.DateTimeField(allow_null=True)


class DroppedBody(Body):
    """What of the telemetry was lost, and what of that came back."""

    bus = serializers.IntegerField(help_text="Dropped by Spark's listener queues.")
    outbox = serializers.IntegerField(help_text="Dropped: spool full.")
    missing_batches = serializers.IntegerField()
    repaired = serializers.IntegerField()


class CrashLoopBody(Body):
    """So many failures in so short a time that they are one incident, open now."""

    first_at = serializers.DateTimeField()
    last_at = serializers.DateTimeField()
    count = serializers.IntegerField()


class LagLineBody(Body):
    """How far a query is behind its Kafka sources, by the newest look at the broker."""

    records = serializers.IntegerField(allow_null=True)
    seconds = serializers.FloatField(allow_null=True, help_text="Age of the first unread record.")
    gone = serializers.IntegerField(help_text="Offsets deleted before they were read.")


class QueryBody(Body):
    """A query: its definition (masked), what is wanted of it, and what it does."""

    name = serializers.CharField(source="query.name")
    application = serializers.CharField(source="query.application.name")
    revision = serializers.IntegerField(allow_null=True)
    running_revision = serializers.IntegerField(allow_null=True)
    in_sync = serializers.BooleanField()
    desired = serializers.ChoiceField([str(word) for word in Desired], source="query.desired")
    phase = serializers.ChoiceField([str(phase) for phase in Phase])
    phase_reason = serializers.CharField(source="query.phase_reason")
    phase_detail = serializers.CharField(source="query.phase_detail")
    phase_since = serializers.DateTimeField(source="query.phase_since", allow_null=True)
    converging = serializers.BooleanField()
    health = HealthBody(allow_null=True)
    current_run = CurrentRunBody(source="run", allow_null=True)
    last_progress = ProgressLineBody(source="progress", allow_null=True)
    last_event_at = serializers.DateTimeField(allow_null=True)
    dropped_events = DroppedBody(source="dropped")
    failures = serializers.IntegerField(source="query.failures")
    next_attempt_at = serializers.DateTimeField(source="query.next_attempt_at", allow_null=True)
    crash_loop = CrashLoopBody(allow_null=True)
    hold = serializers.CharField(source="query.hold")
    risk = serializers.CharField(source="query.risk")
    risk_at = serializers.DateTimeField(
        source="query.risk_at",
        allow_null=True,
        help_text="When the first unread record is, or was, deleted.",
    )
    source_reachable = serializers.BooleanField(source="query.source_reachable", allow_null=True)
    source_unreachable_since = serializers.DateTimeField(
        source="query.source_unreachable_since", allow_null=True
    )
    lag = LagLineBody(allow_null=True)
    needs_application_restart = serializers.ListField(child=serializers.CharField())
    kind = serializers.CharField(source="newest.kind", default="")
    pool = serializers.CharField()
    checkpoint = serializers.CharField()
    created_at = serializers.DateTimeField(source="query.created_at")
    etag = serializers.SerializerMethodField()
    spec = QuerySpecField(source="newest.spec", default=dict)
    links = serializers.SerializerMethodField()

    def get_etag(self, line: QueryLine) -> str:
        """Return the ETag of the definition."""
        return etag(line.query, line.revision)

    def get_links(self, line: QueryLine) -> dict[str, str]:
        """Return where to go on."""
        return query_links(line.query)


class QueryRevisionBody(Body):
    """One immutable form of a query's definition."""

    revision = serializers.IntegerField(source="number")
    kind = serializers.CharField()
    author = serializers.CharField()
    created_at = serializers.DateTimeField()
    spec = QuerySpecField()


class CheckpointBody(Body):
    """A location, the query that holds or held it, and the newest run on it."""

    id = serializers.IntegerField(source="pk")
    location = serializers.CharField()
    query = serializers.CharField(source="query.name")
    application = serializers.CharField(source="query.application.name")
    created_at = serializers.DateTimeField()
    retired_at = serializers.DateTimeField(allow_null=True, help_text="Null: held.")
    built_from = serializers.IntegerField(source="built_from_id", allow_null=True)
    last_run = serializers.SerializerMethodField()
    last_epoch = serializers.SerializerMethodField()

    def get_last_run(self, checkpoint: Checkpoint) -> int | None:
        """Return the newest run's id."""
        runs: list[Run] = getattr(checkpoint, "newest_runs", [])
        return runs[0].pk if runs else None

    def get_last_epoch(self, checkpoint: Checkpoint) -> int | None:
        """Return the newest run's epoch."""
        runs: list[Run] = getattr(checkpoint, "newest_runs", [])
        return runs[0].epoch if runs else None
