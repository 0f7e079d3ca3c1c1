"""Response bodies for applications and queries, in lists and alone, with revision ETags.

A PUT can therefore specify the definition that it is based on, and it does not become stale when a
batch commits in the meantime.
"""

import re
from dataclasses import asdict
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request

from listeners.selectors import DriverTelemetry, Dropped
from queries.api.bodies import (
    Body,
    DetailCodeField,
    MaskedText,
    PhraseField,
    application_links,
    described,
    query_links,
    serializer_for,
)
from queries.api.errors import PreconditionRequired
from queries.api.manifests import SkippedCheckBody
from queries.api.schema import ApplicationSpecField, LabelsField, ObjectField, QuerySpecField
from queries.domain.errors import StaleRevision
from queries.domain.failures.crashes import CrashLoop
from queries.domain.states import Desired, Phase
from queries.domain.supervision.health.verdicts import Health
from queries.models.applications import Application, Script
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Driver, Run
from queries.selectors.checkpoint_logs import logs_unknown
from queries.selectors.code import Asking, asking
from queries.selectors.kafka.lag import LagLine
from queries.selectors.query_lines import ForeignBatches, ProgressLine, QueryLine
from queries.selectors.supervision.applications import ApplicationDetail, PoolHolding
from queries.selectors.tables import TableTotals

_ETAG = re.compile(r'\s*(?:W/)?"([^"]*)"\s*')


def etag(owner: Query | Application, revision: int | None) -> str:
    """Return the ETag for an owner's definition at a revision."""
    kind = "query" if isinstance(owner, Query) else "application"
    return f'"{kind}-{owner.pk}-r{revision or 0}"'


def check_if_match(
    request: Request, owner: Query | Application, revision: int | None, *, required: bool = True
) -> bool:
    """Return whether the request specified this definition; raise if it specified another one.

    A PUT without If-Match raises `PreconditionRequired` (428), a stale one `StaleRevision` (412).
    “*” matches any existing definition.
    """
    header = request.headers.get("If-Match", "").strip()
    if not header:
        if required:
            raise PreconditionRequired()
        return False
    if header == "*":
        return False
    current = etag(owner, revision).strip('"')
    if current not in [match.group(1) for match in _ETAG.finditer(header)]:
        raise StaleRevision(
            f"{owner} is now at revision {revision}, but If-Match specifies another one.",
            way_out="GET it again, apply your change to it, and PUT the result.",
        )
    return True


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
    """A script's new query while others are missing: an author decides if it is one of them.

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
    "application.failures application.next_attempt_at application.restart_block "
    "application.restart_block_reason restart_block_reason_code application.labels telemetry "
    "application.created_at etag spec notes links",
)
class ApplicationBody(Body):
    """An application: its definition (masked), its driver, and its queries and pools.

    own: Whether it was created for a single query.
    standby: The driver without queries that waits to take over; null if there is none.
    script: Null if the application does not run a script.
    team: The team that owns it; null if it is open to everyone.
    needs_restart: What changed since the driver started: revision, pools, code, a
    catalog, Headgate's release.
    notes: Values of the request that were stored in another form.
    """

    restart_block_reason_code = DetailCodeField(source="application.restart_block_reason")
    labels = LabelsField(source="application.labels")
    spec = ApplicationSpecField(source="newest.spec", default=dict)
    notes = serializers.ListField(child=serializers.CharField(), default=list)

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
    """Batches in a query's checkpoint that another process wrote.

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
    "query.failures next_attempt_at=head.next_attempt_at crash_loop=head.crash_loop "
    "query.restart_block query.risk query.risk_at "
    "query.source_reachable query.source_unreachable_since "
    "source_seen_at=lag.answered_at lag foreign_batches foreign_unknown_because "
    "needs_application_restart query.labels query.discovered query.temporary "
    "kind pool checkpoint query.created_at etag spec not_checked refusal notes links",
    desired=Desired,
)
class QueryBody(Body):
    """A query: its definition (masked), its desired state, and its current activity.

    team: The team that owns its application; null if open to everyone. discovered: Whether a script
    starts it; it cannot be changed or started individually. summary: Its current state in one
    sentence, as on its page. summary_about: The topic of that sentence. next_attempt_at: Null if
    the query is not waiting for its next attempt. temporary: Why its checkpoint is not used for
    recovery; "" if it is. risk_at: When the first unread record is, or was, deleted.
    source_seen_at: When a source last responded: the time of `risk` and a true `source_reachable`.
    foreign_batches: Batches that were not made by a Headgate run, in the last 24 hours; null if
    none. foreign_unknown_because: "Unknown, because …": why foreign batches cannot be found; else
    empty. not_checked: Checks of its definition that were skipped when it was saved. refusal: Why
    Spark's parser rejects SQL that was saved unchecked; "" if it does not. notes: Values of the
    request that were stored in another form.
    """

    phase_reason = PhraseField(source="query.phase_reason")
    phase_detail_code = DetailCodeField(source="query.phase_detail")
    labels = LabelsField(source="query.labels")
    kind = serializers.CharField(source="newest.kind", default="")
    spec = QuerySpecField(source="newest.spec", default=dict)
    not_checked = SkippedCheckBody(many=True, source="newest.skipped", default=list)
    notes = serializers.ListField(child=serializers.CharField(), default=list)
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
