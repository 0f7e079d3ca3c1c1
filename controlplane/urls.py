"""All addresses: pages at the root, REST below /api/v1/, probes beside them."""

from django.urls import include, path

urlpatterns = [
    path("", include("queries.urls")),
]
