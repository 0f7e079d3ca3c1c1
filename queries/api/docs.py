"""The API's description: the OpenAPI document, and the page that shows it."""

import json
from functools import cache
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpResponse
from django.shortcuts import render
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.exceptions import NotAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.reference import reference
from queries.api.schema import describe


class SchemaView(ApiView, SpectacularJSONAPIView):  # type: ignore[misc]
    """The OpenAPI 3.1 document."""

    renderer_classes = SpectacularJSONAPIView.renderer_classes


@cache
def _document() -> dict[str, Any]:
    """Return the OpenAPI document, which never changes within a process."""
    document: dict[str, Any] = SchemaGenerator(api_version="1").get_schema(public=True)
    return json.loads(JSONRenderer().render(document))  # type: ignore[no-any-return]


class DocsView(ApiView):
    """The page with the document: every operation with its fields, responses and an example."""

    @describe(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Show everything on one page."""
        origin = request.build_absolute_uri("/")[:-1]
        context = {"api": reference(_document(), origin=origin)}
        return render(request._request, "api/docs.html", context)

    def handle_exception(self, exc: Exception) -> Any:
        """Redirect an anonymous user to the sign-in page, because this URL is for browsers."""
        if isinstance(exc, NotAuthenticated):
            return redirect_to_login(self.request.get_full_path())
        self.request.accepted_renderer = JSONRenderer()
        return super().handle_exception(exc)


class NothingHereView(ApiView):
    """Respond to any other URL below the API's root with a problem, not a page."""

    @describe(exclude=True)
    def get(self, request: Request, rest: str = "") -> Response:
        """Report that this URL does not exist."""
        raise Http404

    post = put = patch = delete = get
