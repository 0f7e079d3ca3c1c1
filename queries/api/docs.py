"""The API's own description, offline: the OpenAPI document and a page to try it from."""

from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import Http404
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView
from rest_framework.exceptions import NotAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.schema import describe


class SchemaView(ApiView, SpectacularJSONAPIView):  # type: ignore[misc]
    """The OpenAPI 3.1 document."""


class DocsView(ApiView, SpectacularSwaggerSplitView):  # type: ignore[misc]
    """The page that shows the document; its script comes from an address of its own (CSP)."""

    template_name = "api/docs.html"
    url_name = "api:schema"

    def handle_exception(self, exc: Exception) -> Any:
        """Send a stranger to the sign-in page: this address is for people."""
        if isinstance(exc, NotAuthenticated):
            return redirect_to_login(self.request.get_full_path())
        self.request.accepted_renderer = JSONRenderer()
        return super().handle_exception(exc)


class NothingHereView(ApiView):
    """Any other address below the API's root: a problem, not a page."""

    @describe(exclude=True)
    def get(self, request: Request, rest: str = "") -> Response:
        """Say that there is nothing here."""
        raise Http404

    post = put = patch = delete = get
