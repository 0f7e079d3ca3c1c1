"""The page of connectors: which jars of the installation drivers can be given."""

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import path

from queries.roles import VIEW
from queries.selectors.definitions.connectors import connectors
from queries.views.console.guard import needs


@needs(VIEW, "GET")
def connector_list(request: HttpRequest) -> HttpResponseBase:
    """List the connectors that stand ready or are named, with jars and applications."""
    context = {"connectors": connectors(), "folder": settings.CONNECTORS_DIR}
    return render(request, "definitions/connectors.html", context)


urlpatterns = [path("connectors/", connector_list, name="connectors")]
