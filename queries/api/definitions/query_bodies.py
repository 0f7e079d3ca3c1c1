"""What the API says of queries: one form for the list and for each of them."""

from rest_framework import serializers

from listeners.selectors import Dropped
from queries.api.definitions.etags import etag
from queries.api.derived import Body, shows
from queries.api.links import query_links
from queries.api.reasons import DetailCodeField, PhraseField
from queries.api.schema import LabelsField, QuerySpecField
from queries.domain.failures.crash_loops import CrashLoop
from queries.domain.states import Desired
from queries.domain.supervision.health import Health
from queries.models.definitions import Checkpoint, QueryRevision
from queries.models.drivers import Run
from queries.selectors.kafka.lag import LagLine
from queries.selectors.query_lines import ForeignBatches, ProgressLine, QueryLine


@shows(Health, "verdict reason since")
class HealthBody(Body):
    """The verdict of a running query with its evidence."""


@shows(
    Run,
    "id=pk driver=driver_id epoch driver.pid driver.jvm_pid driver.host started_at spark_run_id",
)
class CurrentRunBody(Body):
    """The run that is open now, and the driver that hosts it.

    pid: The driver's Python.
    """


@shows(
    ProgressLine,
    "batch_id timestamp num_input_rows input_rows_per_second processed_rows_per_second "
    "batch_duration_ms duration_ms watermark",
)
class ProgressLineBody(Body):
    """The newest executed batch in numbers."""


@shows(Dropped, "bus outbox missing_batches repaired")
class DroppedBody(Body):
    """What of the telemetry was lost, and what of that came back.

    bus: Dropped by Spark's listener queues.
    outbox: Dropped: spool full.
    """


@shows(CrashLoop, "first_at last_at count")
class CrashLoopBody(Body):
    """So many failures in so short a time that they are one incident, open now."""


@shows(LagLine, "records unit waiting seconds gone")
class LagLineBody(Body):
    """How far a query is behind its Kafka sources, by the newest look at the broker.

    records: Unread, in `unit`.
    unit: "offsets" where some of them may be no records.
    waiting: Of the unread, those that wait for an open transaction.
    seconds: Age of the first unread record.
    gone: Offsets deleted before they were read.
    """


@shows(ForeignBatches, "first last at")
class ForeignBatchesBody(Body):
    """Batches in a query's checkpoint that another process made.

    at: When the last of them began.
    """


@shows(
    QueryLine,
    "query.name application=query.application.name team=query.application.team.name revision "
    "running_revision in_sync query.desired phase query.phase_reason "
    "phase_reason_code=query.phase_reason "
    "query.phase_detail phase_detail_code query.phase_since converging "
    "health current_run=run last_progress=progress last_event_at dropped_events=dropped "
    "query.failures query.next_attempt_at crash_loop query.hold query.risk query.risk_at "
    "query.source_reachable query.source_unreachable_since lag foreign_batches "
    "needs_application_restart query.labels query.discovered query.temporary "
    "kind pool checkpoint query.created_at etag spec links",
    desired=Desired,
)
class QueryBody(Body):
    """A query: its definition (masked), what is wanted of it, and what it does.

    team: Of its application; null: everybody's.
    discovered: Started by its application's script; not changed or started by itself.
    temporary: Why nothing is recovered from its checkpoint; "" where it is.
    risk_at: When the first unread record is, or was, deleted.
    foreign_batches: In its checkpoint and of no run of Headgate, in the last 24 hours; null: none.
    """

    phase_reason = PhraseField(source="query.phase_reason")
    phase_detail_code = DetailCodeField(source="query.phase_detail")
    labels = LabelsField(source="query.labels")
    kind = serializers.CharField(source="newest.kind", default="")
    spec = QuerySpecField(source="newest.spec", default=dict)

    def get_etag(self, line: QueryLine) -> str:
        """Return the ETag of the definition."""
        return etag(line.query, line.revision)

    def get_links(self, line: QueryLine) -> dict[str, str]:
        """Return the links."""
        return query_links(line.query)


@shows(QueryRevision, "revision=number kind author created_at spec")
class QueryRevisionBody(Body):
    """One immutable form of a query's definition."""

    spec = QuerySpecField()


@shows(
    Checkpoint,
    "id=pk location query=query.name application=query.application.name created_at "
    "retired_at built_from=built_from_id last_run last_epoch",
)
class CheckpointBody(Body):
    """A location, the query that holds or held it, and the newest run on it.

    retired_at: Null: held.
    """

    def get_last_run(self, checkpoint: Checkpoint) -> int | None:
        """Return the newest run's id."""
        runs: list[Run] = getattr(checkpoint, "newest_runs", [])
        return runs[0].pk if runs else None

    def get_last_epoch(self, checkpoint: Checkpoint) -> int | None:
        """Return the newest run's epoch."""
        runs: list[Run] = getattr(checkpoint, "newest_runs", [])
        return runs[0].epoch if runs else None
