"""URLs in the REST API, below /api/v1/; each one ends with a slash."""

from collections.abc import Callable
from typing import Any

from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, re_path

from queries.api import (
    access,
    checkpoints,
    code,
    deploys,
    docs,
    lag,
    lineage,
    manifests,
    probes,
    schedules,
    secrets,
    system,
    triggers,
)
from queries.api.alerts import views as thresholds
from queries.api.definitions import changes
from queries.api.supervision import applications, history, operations, queries

app_name = "api"

_QUERY = "queries/<query:name>/"
_APPLICATION = "applications/<str:name>/"
_INCIDENT = "incidents/<uuid:uuid>/"
_GROUP = "failure-groups/<int:group_id>/"


def _at(route: str, view: Any, name: str) -> URLPattern:
    """Return a URL pattern; `view` is a class, or a function that serves one."""
    serve: Callable[..., HttpResponseBase] = getattr(view, "as_view", lambda: view)()
    return path(route, serve, name=name)


urlpatterns = [
    _at("queries/", queries.QueriesView, "queries"),
    _at("queries:start/", operations.StartManyView, "queries-start"),
    _at("queries:stop/", operations.StopManyView, "queries-stop"),
    _at("queries:restart/", operations.RestartManyView, "queries-restart"),
    _at(_QUERY, queries.QueryView, "query"),
    _at(f"{_QUERY}start/", queries.QueryStartView, "query-start"),
    _at(f"{_QUERY}takeover/", queries.QueryTakeoverView, "query-takeover"),
    _at(f"{_QUERY}stop/", queries.QueryStopView, "query-stop"),
    _at(f"{_QUERY}restart/", queries.QueryRestartView, "query-restart"),
    _at(f"{_QUERY}revisions/", queries.QueryRevisionsView, "query-revisions"),
    _at(f"{_QUERY}runs/", queries.QueryRunsView, "query-runs"),
    _at(f"{_QUERY}progress/", queries.QueryProgressView, "query-progress"),
    _at(f"{_QUERY}failures/", queries.QueryFailuresView, "query-failures"),
    _at(f"{_QUERY}labels/", changes.QueryLabelsView, "query-labels"),
    _at(f"{_QUERY}advice/", triggers.QueryAdviceView, "query-advice"),
    _at(f"{_QUERY}thread-dump/", triggers.QueryThreadDumpView, "query-thread-dump"),
    _at(f"{_QUERY}async/", triggers.QueryAsyncView, "query-async"),
    _at(f"{_QUERY}thresholds/", thresholds.QueryThresholdsView, "query-thresholds"),
    _at(
        f"{_QUERY}thresholds/preview/",
        thresholds.QueryThresholdPreviewView,
        "query-threshold-preview",
    ),
    _at(f"{_QUERY}schedule/", schedules.QueryScheduleView, "query-schedule"),
    _at(f"{_QUERY}schedule/runs/", schedules.QueryPlannedRunsView, "query-planned-runs"),
    _at(f"{_QUERY}schedule/pause/", schedules.QuerySchedulePauseView, "query-schedule-pause"),
    _at(f"{_QUERY}schedule/resume/", schedules.QueryScheduleResumeView, "query-schedule-resume"),
    _at(f"{_QUERY}lag/", lag.QueryLagView, "query-lag"),
    _at(f"{_QUERY}lineage/", lineage.QueryLineageView, "query-lineage"),
    _at("lineage/", lineage.LineageView, "lineage"),
    _at("schedules/", schedules.SchedulesView, "schedules"),
    _at(f"{_QUERY}losses/", lag.QueryLossesView, "query-losses"),
    _at(f"{_QUERY}losses/<int:loss_id>/correct/", lag.QueryLossCorrectView, "query-loss-correct"),
    _at(f"{_QUERY}go-on/", lag.QueryGoOnView, "query-go-on"),
    _at(f"{_QUERY}exposure/", triggers.QueryExposureView, "query-exposure"),
    _at(f"{_QUERY}async-off/", triggers.QueryAsyncOffView, "query-async-off"),
    _at(f"{_QUERY}batches/", checkpoints.QueryBatchesView, "query-batches"),
    _at(f"{_QUERY}snapshots/", checkpoints.QuerySnapshotsView, "query-snapshots"),
    _at(f"{_QUERY}snapshots/<int:number>/", checkpoints.QuerySnapshotView, "query-snapshot"),
    _at(f"{_QUERY}rewind/", checkpoints.QueryRewindView, "query-rewind"),
    _at(f"{_QUERY}reset/", checkpoints.QueryResetView, "query-reset"),
    _at(f"{_QUERY}clone/", checkpoints.QueryCloneView, "query-clone"),
    _at(f"{_QUERY}preflight/", probes.QueryPreflightView, "query-preflight"),
    _at(f"{_QUERY}records/", probes.QueryRecordsView, "query-records"),
    _at(f"{_QUERY}records/<uuid:uuid>/", probes.QueryBatchRecordsView, "query-batch-records"),
    _at(f"{_QUERY}x-ray/", probes.QueryXrayView, "query-x-ray"),
    _at(f"{_QUERY}x-ray/<uuid:uuid>/", probes.QueryXrayRowsView, "query-x-ray-rows"),
    _at("operations/", operations.OperationsView, "operations"),
    _at("operations/<uuid:uuid>/", operations.operation, "operation"),
    _at("operations/<uuid:uuid>/cancel/", operations.OperationCancelView, "operation-cancel"),
    _at("runs/<int:run_id>/", history.RunView, "run"),
    _at("runs/<int:run_id>/log/", history.RunLogView, "run-log"),
    _at("failures/<int:failure_id>/", history.FailureView, "failure"),
    _at("failure-groups/", history.FailureGroupsView, "failure-groups"),
    _at(_GROUP, history.FailureGroupView, "failure-group"),
    _at(f"{_GROUP}failures/", history.FailureGroupFailuresView, "failure-group-failures"),
    _at(f"{_GROUP}resolve/", history.FailureGroupResolveView, "failure-group-resolve"),
    _at(f"{_GROUP}reopen/", history.FailureGroupReopenView, "failure-group-reopen"),
    _at("incidents/", thresholds.IncidentsView, "incidents"),
    _at(_INCIDENT, thresholds.IncidentView, "incident"),
    _at(f"{_INCIDENT}entries/", thresholds.IncidentStoryView, "incident-entries"),
    _at(f"{_INCIDENT}acknowledge/", thresholds.IncidentAcknowledgeView, "incident-acknowledge"),
    _at(f"{_INCIDENT}snooze/", thresholds.IncidentSnoozeView, "incident-snooze"),
    _at(f"{_INCIDENT}assign/", thresholds.IncidentAssignView, "incident-assign"),
    _at(f"{_INCIDENT}notes/", thresholds.IncidentNoteView, "incident-notes"),
    _at(f"{_INCIDENT}close/", thresholds.IncidentCloseView, "incident-close"),
    _at("checkpoints/", history.CheckpointsView, "checkpoints"),
    _at("code/", code.UploadsView, "code"),
    _at("code/<str:digest>/", code.UploadView, "upload"),
    *thresholds.urlpatterns,
    *code.urlpatterns,
    *secrets.urlpatterns,
    *access.urlpatterns,
    _at("connectors/", system.ConnectorsView, "connectors"),
    _at("connectors/<str:spark>/<str:name>/", system.ConnectorView, "connector"),
    _at("sparks/", system.SparksView, "sparks"),
    _at("sparks/<str:version>/", system.SparkView, "spark"),
    _at("applications/", applications.ApplicationsView, "applications"),
    _at(_APPLICATION, applications.ApplicationView, "application"),
    _at(f"{_APPLICATION}start/", applications.ApplicationStartView, "application-start"),
    _at(f"{_APPLICATION}stop/", applications.ApplicationStopView, "application-stop"),
    _at(f"{_APPLICATION}schedule/", schedules.ApplicationScheduleView, "application-schedule"),
    _at(
        f"{_APPLICATION}schedule/runs/",
        schedules.ApplicationPlannedRunsView,
        "application-planned-runs",
    ),
    _at(
        f"{_APPLICATION}schedule/pause/",
        schedules.ApplicationSchedulePauseView,
        "application-schedule-pause",
    ),
    _at(
        f"{_APPLICATION}schedule/resume/",
        schedules.ApplicationScheduleResumeView,
        "application-schedule-resume",
    ),
    _at(f"{_APPLICATION}restart/", applications.ApplicationRestartView, "application-restart"),
    _at(
        f"{_APPLICATION}declare-host-gone/",
        applications.ApplicationHostGoneView,
        "application-host-gone",
    ),
    _at(f"{_APPLICATION}answer/", applications.ApplicationAnswerView, "application-answer"),
    _at(f"{_APPLICATION}drivers/", history.DriversView, "drivers"),
    _at(f"{_APPLICATION}drivers/<int:epoch>/log/", history.DriverLogView, "driver-log"),
    _at(f"{_APPLICATION}labels/", changes.ApplicationLabelsView, "application-labels"),
    _at(f"{_APPLICATION}waits/", triggers.ApplicationWaitsView, "application-waits"),
    _at(f"{_APPLICATION}pools/", applications.PoolsView, "pools"),
    _at(f"{_APPLICATION}pools/<str:pool>/", applications.PoolView, "pool"),
    _at("audit/", access.AuditView, "audit"),
    _at("audit/export/", access.AuditExportView, "audit-export"),
    _at("system/", system.SystemView, "system"),
    _at(f"{_QUERY}rollback/", deploys.QueryRollbackView, "query-rollback"),
    _at("deploys/", deploys.DeploysView, "deploys"),
    _at("deploys/<uuid:uuid>/", deploys.DeployView, "deploy"),
    _at("deploys/<uuid:uuid>/cancel/", deploys.DeployCancelView, "deploy-cancel"),
    _at("apply/", manifests.ApplyView, "apply"),
    _at("export/", manifests.ExportView, "export"),
    _at(f"{_QUERY}owner/", manifests.QueryOwnerView, "query-owner"),
    _at(f"{_APPLICATION}owner/", manifests.ApplicationOwnerView, "application-owner"),
    _at("alert-rules/<str:name>/owner/", manifests.RuleOwnerView, "alert-rule-owner"),
    _at("schema/manifest.json", manifests.ManifestSchemaView, "manifest-schema"),
    _at("schema/", docs.SchemaView, "schema"),
    _at("docs/", docs.DocsView, "docs"),
    # A line break does not end a URL: such a URL is answered like any other unknown URL.
    re_path(r"^(?P<rest>[\s\S]*)$", docs.NothingHereView.as_view(), name="nothing"),
]
