"""The API's own description, offline: the OpenAPI document and a page to try it from."""

from typing import Any

from django.http import Http404
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.schema import describe


class SchemaView(ApiView, SpectacularJSONAPIView):  # type: ignore[misc]
    """The OpenAPI 3.1 document."""

    authentication_classes = ApiView.authentication_classes
    permission_classes = ApiView.permission_classes


class DocsView(ApiView, SpectacularSwaggerSplitView):  # type: ignore[misc]
    """The page that shows the document; its script comes from an address of its own (CSP)."""

    authentication_classes = ApiView.authentication_classes
    permission_classes = ApiView.permission_classes
    template_name = "queries/api_docs.html"
    url_name = "api:schema"


class NothingHereView(ApiView):
    """Any other address below the API's root: a problem, not a page."""

    @describe(exclude=True)
    def get(self, request: Request, rest: str = "") -> Response:
        """Say that there is nothing here."""
        raise Http404

    post = put = patch = delete = get


__all__: list[Any] = ["DocsView", "NothingHereView", "SchemaView"]
