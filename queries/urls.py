"""URLs of the pages; each views module contributes its own list."""

from django.urls import URLPattern, URLResolver

from queries.views import deploys, kafka, lineage, pods, probes, schedules, system, triggers
from queries.views.access import audit, rights, sign_in
from queries.views.alerts import incidents, setup_pages
from queries.views.checkpoints import checkpoint, checkpoint_actions
from queries.views.console import account, documentation, find, live, shell
from queries.views.definitions import query_edit
from queries.views.failures import failures, logs
from queries.views.supervision import (
    actions,
    applications,
    operations,
    query_list,
    query_page,
    runs,
)

urlpatterns: list[URLPattern | URLResolver] = [
    *shell.urlpatterns,
    *find.urlpatterns,
    *query_list.urlpatterns,
    *query_page.urlpatterns,
    *logs.urlpatterns,
    *probes.urlpatterns,
    *triggers.urlpatterns,
    *actions.urlpatterns,
    *kafka.urlpatterns,
    *lineage.urlpatterns,
    *live.urlpatterns,
    *failures.urlpatterns,
    *setup_pages.urlpatterns,
    *incidents.urlpatterns,
    *schedules.urlpatterns,
    *runs.urlpatterns,
    *applications.urlpatterns,
    *checkpoint.urlpatterns,
    *checkpoint_actions.urlpatterns,
    *audit.urlpatterns,
    *operations.urlpatterns,
    *deploys.urlpatterns,
    *sign_in.urlpatterns,
    *rights.urlpatterns,
    *account.urlpatterns,
    *documentation.urlpatterns,
    *system.urlpatterns,
    *query_edit.urlpatterns,
    *pods.urlpatterns,
]
