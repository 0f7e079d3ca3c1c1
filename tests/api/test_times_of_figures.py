"""Every figure that is not of this moment comes with the time when it was taken.

Each number or flag of an answer is either a fact of the moment of the answer (rows of our own
database, files that are read for it, what was asked for), or measured earlier: then its body has a
time. A new one is in neither list, and this test asks which it is.
"""

from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator

#: Bodies of figures that were measured before: the time of them, in the body or one around it.
MEASURED = {
    "AdviceBody": "measured_at",
    "AsyncOperatorBody": "until",
    "BacklogBody": "ran_at",
    "BehindBody": "PartitionLagBody.seen_at QueryLagBody.seen_at",
    "CostBody": "AdviceBody.measured_at",
    "ExpectedBody": "AdviceBody.measured_at",
    "GapBody": "QueryLagBody.seen_at",
    "LagLineBody": "seen_at",
    "PartitionLagBody": "seen_at",
    "ProgressLineBody": "timestamp",
    "QueryLagBody": "seen_at",
    "SnapshotBody": "taken_at",
    "SystemBody": "at",
    "TableLineBody": "seen_at",
    "TableTotalsBody": "LagLineBody.seen_at",
    "ThreadDumpBody": "at",
    "ThresholdStatusBody": "seen_at",
    "TopicLagBody": "QueryLagBody.seen_at",
    "UploadBody": "uploaded_at",
    "UploadWithPathsBody": "uploaded_at",
    "XrayBody": "taken_at",
}
#: Fields of other bodies, by the time that says when they were true.
MEASURED_FIELDS = {"QueryBody": {"source_reachable": "source_seen_at"}}
#: What is true at the moment of the answer, or for good.
FACTS = {
    "ApplicationBody": "failures own revision running_revision",
    "ApplicationSpec": "require_preflight",
    "AppliedBody": "dry_run",
    "AuditEntryBody": "number",
    "BatchBody": "batch left_out_before records upgraded watermark_after_9999",
    "BatchesBody": "batches first last repaired rows rows_written",
    "BindingBody": "id",
    "CandidateBody": "batch run",
    "ChannelBody": "enabled",
    "CatalogBody": "vended",
    "CheckpointBody": "built_from id last_epoch last_run",
    "CodeHostBody": "id",
    "ConnectorBody": "bytes ready",
    "CrashLoopBody": "count",
    "CurrentRunBody": "driver epoch id jvm_pid pid",
    "DeployBody": "preflight size",
    "DeployedApplicationBody": "back_revision from_revision to_revision",
    "DeployedQueryBody": "back_revision first_batch from_revision snapshot to_revision",
    "DriverBody": "epoch id jvm_pid pid",
    "DroppedBody": "bus missing_batches outbox repaired",
    "EdgeBody": "writes",
    "ExecutorBody": "active cores",  # with added_at and removed_at
    "ExposureBody": (
        "batches by_default interval_ms kept missing newest rows rows_in_flight running seconds"
    ),
    "FailureBody": "attempt batch driver group id run",
    "FailureDetailBody": "attempt batch driver group id last_good_run run",
    "FailureGroupBody": "count id",
    "ForeignBatchesBody": "first last",
    "GoodForm": ("batches deadline_minutes first_commit lag_not_worse minutes no_new_failures"),
    "GroupRoleBody": "id",
    "ExplainedIncidentBody": "affected_count failure_group occurrence run",
    "IncidentBody": "affected_count failure_group occurrence run",
    "JarBody": "bytes",
    "LimitBody": "chosen",
    "LineageBody": "left_out",
    "LossBody": "batch corrects from_offset id offsets partition records to_offset",
    "MaintenanceBody": "id",
    "MeBody": "may_write_python",
    "MovedBody": "after before repeated skipped",
    "NotShown": "id",
    "ObjectBody": "revision",
    "OfferBody": "batch revision snapshot",
    "OperationBody": "cancellable failure",
    "OperationDetailBody": "cancellable failure",
    "LastPlannedBody": "duration_s late_s rows",  # with started_at and ended_at
    "PlannedRunBody": "due_times duration_s late_s",  # with started_at and ended_at
    "PoolBody": "min_share weight",
    "PreviewBody": "batch batches files newest records",
    "ProgressRowBody": "batch id repaired run",
    "QueryBody": "converging discovered failures in_sync revision running_revision",
    "QueryExposureBody": "async_progress",
    "QueryLineageBody": "left_out",
    "QueryRevisionBody": "revision",
    "ScheduleBody": (
        "catch_up_window_s overdue period_s poll_interval_s quiet_period_s ran_s runs timeout_s"
    ),
    "ScheduleLineBody": "overdue",
    "TallyBody": "done due failed late latest_s ran_s running stopped waiting",  # of rows
    "RangeBody": "end partition records start",
    "RecordsBody": "searched",
    "ReplayedBody": "after batches first last rows rows_in_flight seconds",
    "RestartPolicy": (
        "base_delay_s healthy_after_s max_delay_s poison_limit probe_every_s restart_on_stall"
    ),
    "RootBody": "id",
    "RuleBody": "enabled escalate_after_minutes position remind_every_hours",
    "RunBody": "driver driver_epoch epoch id jvm_pid last_batch pid revision",
    "RunDetailBody": (
        "driver driver_epoch epoch failures id jvm_pid last_batch next pid previous revision"
    ),
    "Schedule": "catch_up_window_s poll_interval_s quiet_period_s timeout_s",
    "SecretBody": "there",
    "SlowBatchBody": "batch rows run took_ms",  # with at
    "SlowCauseBody": "ms",
    "SparkBody": "bytes drivers ours ready",
    "Submit": "executor_cores num_executors total_executor_cores",
    "TaskShareBody": "covered_s share task_s waited_for waited_s",
    "ThreadDumpsBody": "overdue",
    "Threshold": "factor value window_minutes",
    "ThresholdPreviewBody": "known_minutes limit minutes",
    "TrialBody": "dry_run",
    "WaitsBody": "hours",
    "WaveBody": "number",
    "SkippedCheckBody": "again",
}


@pytest.fixture(scope="module")
def bodies() -> dict[str, dict[str, Any]]:
    """Return the properties of each body that an address answers with."""
    schema = SchemaGenerator().get_schema(request=None, public=True)
    schemas = schema["components"]["schemas"]
    found: dict[str, dict[str, Any]] = {}
    waiting = [
        name
        for methods in schema["paths"].values()
        for method in methods.values()
        if isinstance(method, dict)
        for status, answer in method.get("responses", {}).items()
        if str(status).startswith("2")
        for name in _named(answer)
    ]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = schemas[name].get("properties", {})
            waiting += _named(schemas[name])
    return found


def _named(node: Any) -> list[str]:
    """Return the components that a part of the schema refers to."""
    if isinstance(node, list):
        return [name for one in node for name in _named(one)]
    if not isinstance(node, dict):
        return []
    own = [str(node["$ref"]).rpartition("/")[2]] if "$ref" in node else []
    return own + [name for one in node.values() for name in _named(one)]


def _figures(properties: dict[str, Any]) -> set[str]:
    """Return the names of numbers and flags."""
    kinds = {"integer", "number", "boolean"}

    def holds(one: Any) -> bool:
        if not isinstance(one, dict):
            return False
        said = one.get("type", ())
        own = {said} if isinstance(said, str) else set(said)
        return (
            bool(kinds & own) or holds(one.get("items")) or holds(one.get("additionalProperties"))
        )

    return {name for name, one in properties.items() if holds(one)}


def test_each_figure_is_of_now_or_says_of_when_it_is(bodies: dict[str, dict[str, Any]]) -> None:
    unsaid = {}
    for name, properties in bodies.items():
        if name not in MEASURED:
            said = {*FACTS.get(name, "").split(), *MEASURED_FIELDS.get(name, ())}
            if more := _figures(properties) - said:
                unsaid[name] = " ".join(sorted(more))
    assert unsaid == {}, "measured (with a time), or a fact of the moment of the answer?"


def test_the_times_are_there(bodies: dict[str, dict[str, Any]]) -> None:
    wanted = [(name, time) for name, times in MEASURED.items() for time in times.split()]
    wanted += [(name, at) for name, one in MEASURED_FIELDS.items() for at in one.values()]
    for name, time in wanted:
        body, _, field = time.rpartition(".")
        said = bodies[body or name][field]
        assert said.get("format") == "date-time", (name, time, said)


def test_the_lists_hold_nothing_that_is_gone(bodies: dict[str, dict[str, Any]]) -> None:
    assert {*MEASURED, *MEASURED_FIELDS, *FACTS} - bodies.keys() == set()
    for name, fields in FACTS.items():
        assert set(fields.split()) - bodies[name].keys() == set(), name
