"""URLs of the pages; each views module contributes its own list."""

from django.urls import URLPattern, URLResolver

from queries.views import (
    async_calls,
    code,
    downloads,
    lineage,
    manifests,
    metrics,
    probes,
    scripts,
    system,
)
from queries.views.access import activity, audit, rights, sign_in, single_sign_on
from queries.views.alerts import incident_page, setup_pages, thresholds
from queries.views.checkpoints import checkpoint, checkpoint_actions, checkpoint_list
from queries.views.console import account, find, live, shell
from queries.views.definitions import query_edit, spark_change
from queries.views.deploys import deploy_pages
from queries.views.failures import failure_page, logs
from queries.views.kafka import lag
from queries.views.schedules import planned
from queries.views.schedules import preview as schedule_preview
from queries.views.secrets import grants
from queries.views.supervision import (
    actions,
    applications,
    operations,
    overview,
    query_list,
    query_page,
    runs,
)
from queries.views.triggers import async_progress, trigger

urlpatterns: list[URLPattern | URLResolver] = [
    *shell.urlpatterns,
    *find.urlpatterns,
    *overview.urlpatterns,
    *query_list.urlpatterns,
    *query_page.urlpatterns,
    *logs.urlpatterns,
    *probes.urlpatterns,
    *trigger.urlpatterns,
    *actions.urlpatterns,
    *async_calls.urlpatterns,
    *async_progress.urlpatterns,
    *lag.urlpatterns,
    *lineage.urlpatterns,
    *live.urlpatterns,
    *failure_page.urlpatterns,
    *setup_pages.urlpatterns,
    *incident_page.urlpatterns,
    *thresholds.urlpatterns,
    *schedule_preview.urlpatterns,
    *planned.urlpatterns,
    *runs.urlpatterns,
    *applications.urlpatterns,
    *checkpoint.urlpatterns,
    *checkpoint_actions.urlpatterns,
    *checkpoint_list.urlpatterns,
    *audit.urlpatterns,
    *activity.urlpatterns,
    *operations.urlpatterns,
    *deploy_pages.urlpatterns,
    *manifests.urlpatterns,
    *sign_in.urlpatterns,
    *single_sign_on.urlpatterns,
    *rights.urlpatterns,
    *account.urlpatterns,
    *grants.urlpatterns,
    *system.urlpatterns,
    *downloads.urlpatterns,
    *code.urlpatterns,
    *query_edit.urlpatterns,
    *spark_change.urlpatterns,
    *metrics.urlpatterns,
    *scripts.urlpatterns,
]
