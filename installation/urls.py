"""All URLs: pages at the root, REST below /api/v1/, and the health checks."""

from django.urls import include, path

from queries.views.system import healthz, readyz

handler500 = "queries.views.console.errors.server_error"

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("api/v1/", include("queries.api.urls")),
    path("", include("queries.urls")),
]
