"""Addresses of the REST API, below /api/v1/; every one ends with a slash."""

from django.urls import path, re_path

from queries.api import async_calls, docs, lag, probes, tokens
from queries.api.checkpoints import checkpoint as checkpoints
from queries.api.definitions import connectors
from queries.api.supervision import applications, history, operations, queries
from queries.api.triggers import advice
from queries.api.triggers import async_progress as tracking

app_name = "api"

_QUERY = "queries/<str:name>/"
_APPLICATION = "applications/<str:name>/"
_GROUP = "failure-groups/<int:group_id>/"

urlpatterns = [
    path("queries/", queries.QueriesView.as_view(), name="queries"),
    path(_QUERY, queries.QueryView.as_view(), name="query"),
    path(f"{_QUERY}start/", queries.QueryStartView.as_view(), name="query-start"),
    path(f"{_QUERY}stop/", queries.QueryStopView.as_view(), name="query-stop"),
    path(f"{_QUERY}restart/", queries.QueryRestartView.as_view(), name="query-restart"),
    path(f"{_QUERY}revisions/", queries.QueryRevisionsView.as_view(), name="query-revisions"),
    path(f"{_QUERY}runs/", queries.QueryRunsView.as_view(), name="query-runs"),
    path(f"{_QUERY}progress/", queries.QueryProgressView.as_view(), name="query-progress"),
    path(f"{_QUERY}failures/", queries.QueryFailuresView.as_view(), name="query-failures"),
    path(f"{_QUERY}advice/", advice.QueryAdviceView.as_view(), name="query-advice"),
    path(f"{_QUERY}async/", async_calls.QueryAsyncView.as_view(), name="query-async"),
    path(f"{_QUERY}lag/", lag.QueryLagView.as_view(), name="query-lag"),
    path(f"{_QUERY}losses/", lag.QueryLossesView.as_view(), name="query-losses"),
    path(f"{_QUERY}go-on/", lag.QueryGoOnView.as_view(), name="query-go-on"),
    path(f"{_QUERY}exposure/", tracking.QueryExposureView.as_view(), name="query-exposure"),
    path(f"{_QUERY}async-off/", tracking.QueryAsyncOffView.as_view(), name="query-async-off"),
    path(f"{_QUERY}batches/", checkpoints.QueryBatchesView.as_view(), name="query-batches"),
    path(f"{_QUERY}snapshots/", checkpoints.QuerySnapshotsView.as_view(), name="query-snapshots"),
    path(
        f"{_QUERY}snapshots/<int:number>/",
        checkpoints.QuerySnapshotView.as_view(),
        name="query-snapshot",
    ),
    path(f"{_QUERY}rewind/", checkpoints.QueryRewindView.as_view(), name="query-rewind"),
    path(f"{_QUERY}reset/", checkpoints.QueryResetView.as_view(), name="query-reset"),
    path(f"{_QUERY}clone/", checkpoints.QueryCloneView.as_view(), name="query-clone"),
    path(f"{_QUERY}preflight/", probes.QueryPreflightView.as_view(), name="query-preflight"),
    path(f"{_QUERY}x-ray/", probes.QueryXrayView.as_view(), name="query-x-ray"),
    path(
        f"{_QUERY}x-ray/<uuid:uuid>/", probes.QueryXrayRowsView.as_view(), name="query-x-ray-rows"
    ),
    path("operations/", operations.OperationsView.as_view(), name="operations"),
    path("operations/<uuid:uuid>/", operations.operation, name="operation"),
    path(
        "operations/<uuid:uuid>/cancel/",
        operations.OperationCancelView.as_view(),
        name="operation-cancel",
    ),
    path("runs/<int:run_id>/", history.RunView.as_view(), name="run"),
    path("runs/<int:run_id>/log/", history.RunLogView.as_view(), name="run-log"),
    path("failures/<int:failure_id>/", history.FailureView.as_view(), name="failure"),
    path("failure-groups/", history.FailureGroupsView.as_view(), name="failure-groups"),
    path(_GROUP, history.FailureGroupView.as_view(), name="failure-group"),
    path(
        f"{_GROUP}failures/",
        history.FailureGroupFailuresView.as_view(),
        name="failure-group-failures",
    ),
    path(
        f"{_GROUP}resolve/", history.FailureGroupResolveView.as_view(), name="failure-group-resolve"
    ),
    path(f"{_GROUP}reopen/", history.FailureGroupReopenView.as_view(), name="failure-group-reopen"),
    path("checkpoints/", history.CheckpointsView.as_view(), name="checkpoints"),
    path("connectors/", connectors.ConnectorsView.as_view(), name="connectors"),
    path("applications/", applications.ApplicationsView.as_view(), name="applications"),
    path(_APPLICATION, applications.ApplicationView.as_view(), name="application"),
    path(
        f"{_APPLICATION}stop/", applications.ApplicationStopView.as_view(), name="application-stop"
    ),
    path(
        f"{_APPLICATION}restart/",
        applications.ApplicationRestartView.as_view(),
        name="application-restart",
    ),
    path(f"{_APPLICATION}pools/", applications.PoolsView.as_view(), name="pools"),
    path(f"{_APPLICATION}pools/<str:pool>/", applications.PoolView.as_view(), name="pool"),
    path("tokens/", tokens.TokensView.as_view(), name="tokens"),
    path("tokens/<uuid:uuid>/", tokens.TokenView.as_view(), name="token"),
    path("me/", tokens.MeView.as_view(), name="me"),
    path("schema/", docs.SchemaView.as_view(), name="schema"),
    path("docs/", docs.DocsView.as_view(), name="docs"),
    re_path(r"^(?P<rest>.*)$", docs.NothingHereView.as_view(), name="nothing"),
]
