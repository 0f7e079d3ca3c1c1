"""The API's own description: the OpenAPI document, and the page on which people read it."""

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
    """Return the OpenAPI document; it is the same as long as this process lives."""
    document: dict[str, Any] = SchemaGenerator(api_version="1").get_schema(public=True)
    return json.loads(JSONRenderer().render(document))  # type: ignore[no-any-return]


class DocsView(ApiView):
    """The page that shows the document: every operation with its fields, answers and an example."""

    @describe(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Show all of it on one page."""
        origin = request.build_absolute_uri("/")[:-1]
        context = {"api": reference(_document(), origin=origin)}
        return render(request._request, "api/docs.html", context)

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
