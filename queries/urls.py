"""Addresses of the pages; each module of views brings its own list."""

from django.urls import URLPattern, URLResolver

from queries.views import (
    access,
    actions,
    applications,
    async_calls,
    async_progress,
    audit,
    checkpoint,
    checkpoint_acts,
    checkpoints,
    connectors,
    failures,
    forms,
    lag,
    lists,
    live,
    operations,
    overview,
    query,
    runs,
    shell,
)

urlpatterns: list[URLPattern | URLResolver] = [
    *shell.urlpatterns,
    *overview.urlpatterns,
    *lists.urlpatterns,
    *query.urlpatterns,
    *actions.urlpatterns,
    *async_calls.urlpatterns,
    *async_progress.urlpatterns,
    *lag.urlpatterns,
    *live.urlpatterns,
    *failures.urlpatterns,
    *runs.urlpatterns,
    *applications.urlpatterns,
    *checkpoint.urlpatterns,
    *checkpoint_acts.urlpatterns,
    *checkpoints.urlpatterns,
    *connectors.urlpatterns,
    *audit.urlpatterns,
    *operations.urlpatterns,
    *access.urlpatterns,
    *forms.urlpatterns,
]
