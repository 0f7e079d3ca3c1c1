"""Response bodies for queries: the same for the list and for each query."""

from rest_framework import serializers

from listeners.selectors import Dropped
from queries.api.definitions.etags import etag
from queries.api.derived import Body, serializer_for
from queries.api.links import query_links
from queries.api.manifests.bodies import SkippedCheckBody
from queries.api.reasons import DetailCodeField, PhraseField
from queries.api.schema import LabelsField, QuerySpecField
from queries.domain.failures.crash_loops import CrashLoop
from queries.domain.states import Desired
from queries.domain.supervision.health.verdicts import Health
from queries.models.definitions import Checkpoint, QueryRevision
from queries.models.drivers import Run
from queries.selectors.checkpoint_logs import logs_unknown
from queries.selectors.kafka.lag import LagLine
from queries.selectors.query_lines import ForeignBatches, ProgressLine, QueryLine
from queries.selectors.tables.lag import TableTotals


@serializer_for(Health, "verdict reason since")
class HealthBody(Body):
    """A running query's verdict, with its evidence."""


@serializer_for(
    Run,
    "id=pk driver=driver_id epoch driver.pid driver.jvm_pid driver.host started_at spark_run_id",
)
class CurrentRunBody(Body):
    """The open run, and the driver that hosts it.

    pid: The PID of the driver's Python process.
    """


@serializer_for(
    ProgressLine,
    "batch_id timestamp num_input_rows input_rows_per_second processed_rows_per_second "
    "batch_duration_ms duration_ms watermark watermark_note",
)
class ProgressLineBody(Body):
    """Figures for the newest executed batch; null if unknown.

    watermark_note: Why the watermark is null: it is after the year 9999.
    """


@serializer_for(Dropped, "bus outbox missing_batches repaired")
class DroppedBody(Body):
    """Telemetry that was lost, and the part that was recovered.

    bus: Number of events dropped by Spark's listener queues.
    outbox: Number of events dropped because the spool was full.
    """


@serializer_for(CrashLoop, "first_at last_at count")
class CrashLoopBody(Body):
    """A crash loop: enough failures in a short time to count as one incident, which is open."""


@serializer_for(TableTotals, "versions files bytes")
class TableTotalsBody(Body):
    """How far a query is behind all its tables; a number is null if it is unknown for one.

    versions: Unread versions of Delta tables, and snapshots of Iceberg tables.
    """


@serializer_for(LagLine, "records unit waiting seconds gone seen_at current tables")
class LagLineBody(Body):
    """How far a query is behind its Kafka sources and tables, as of the latest check.

    seen_at: When the oldest of these numbers was read.
    current: Read in the last 30 seconds (11 minutes for tables) and since its last run ended.
    records: Number of unread records, in `unit`.
    unit: "offsets" if some may not be records; "versions" if it reads only tables.
    waiting: Unread records that are waiting for an open transaction.
    seconds: Age of the first unread record, or table version.
    tables: Null if it reads no table.
    gone: Offsets deleted before a batch committed them.
    """


@serializer_for(ForeignBatches, "first last at")
class ForeignBatchesBody(Body):
    """Batches in a query's checkpoint that were made by another process.

    at: When the last of them began.
    """


@serializer_for(
    QueryLine,
    "query.name application=query.application.name team=query.application.team.name revision "
    "running_revision in_sync query.desired phase query.phase_reason "
    "phase_reason_code=query.phase_reason "
    "query.phase_detail phase_detail_code query.phase_since converging "
    "health current_run=run last_progress=progress last_event_at dropped_events=dropped "
    "summary=head.sentence summary_about=head.about "
    "query.failures next_attempt_at=head.next_attempt_at crash_loop=head.crash_loop query.hold "
    "query.risk query.risk_at "
    "query.source_reachable query.source_unreachable_since "
    "source_seen_at=lag.answered_at lag foreign_batches foreign_unknown_because "
    "needs_application_restart query.labels query.discovered query.temporary "
    "kind pool checkpoint query.created_at etag spec not_checked refusal links",
    desired=Desired,
)
class QueryBody(Body):
    """A query: its definition (masked), its desired state, and what it is doing.

    team: The team that owns its application; null if it is open to everyone.
    discovered: Whether a script starts it; it cannot be changed or started individually.
    summary: Its current state in one sentence, as on its page.
    summary_about: The topic of that sentence.
    next_attempt_at: Null if the query is not waiting for its next attempt.
    temporary: Why its checkpoint is not used for recovery; "" if it is.
    risk_at: When the first unread record is, or was, deleted.
    source_seen_at: When a source last responded: the time of `risk` and a true `source_reachable`.
    foreign_batches: Batches that no run of Headgate made, in the last 24 hours; null if none.
    foreign_unknown_because: "Unknown, because …": why foreign batches cannot be found; else empty.
    not_checked: Checks of its definition that were skipped when it was saved.
    refusal: Why Spark's parser rejects SQL that was saved unchecked; "" if it does not.
    """

    phase_reason = PhraseField(source="query.phase_reason")
    phase_detail_code = DetailCodeField(source="query.phase_detail")
    labels = LabelsField(source="query.labels")
    kind = serializers.CharField(source="newest.kind", default="")
    spec = QuerySpecField(source="newest.spec", default=dict)
    not_checked = SkippedCheckBody(many=True, source="newest.skipped", default=list)
    refusal = serializers.CharField(source="newest.refusal", default="")

    def get_etag(self, line: QueryLine) -> str:
        """Return the ETag of the definition."""
        return etag(line.query, line.revision)

    def get_foreign_unknown_because(self, line: QueryLine) -> str:
        """Return why the checkpoint's logs are unknown."""
        if not line.checkpoint:
            return ""
        host = line.query.application.host
        return logs_unknown(line.checkpoint, host=host, reporters=line.reporters)

    def get_links(self, line: QueryLine) -> dict[str, str]:
        """Return the links."""
        return query_links(line.query)


@serializer_for(QueryRevision, "revision=number kind author created_at spec")
class QueryRevisionBody(Body):
    """One immutable version of a query's definition."""

    spec = QuerySpecField()


@serializer_for(
    Checkpoint,
    "id=pk location query=query.name application=query.application.name created_at "
    "retired_at built_from=built_from_id last_run last_epoch",
)
class CheckpointBody(Body):
    """A location, the query that uses or has used it, and its newest run.

    retired_at: Null while it is in use.
    """

    def get_last_run(self, checkpoint: Checkpoint) -> int | None:
        """Return the newest run's ID."""
        runs: list[Run] = getattr(checkpoint, "newest_runs", [])
        return runs[0].pk if runs else None

    def get_last_epoch(self, checkpoint: Checkpoint) -> int | None:
        """Return the newest run's epoch."""
        runs: list[Run] = getattr(checkpoint, "newest_runs", [])
        return runs[0].epoch if runs else None
