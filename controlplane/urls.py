"""All addresses: pages at the root, REST below /api/v1/, probes beside them."""

from importlib.util import find_spec

from django.urls import URLPattern, URLResolver, include, path

from controlplane.probes import healthz, readyz

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("", include("queries.urls")),
]
if find_spec("queries.api.urls"):  # TEMPORARY: becomes a plain line when the API is there
    urlpatterns.insert(2, path("api/v1/", include("queries.api.urls")))
