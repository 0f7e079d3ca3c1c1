"""The page Connectors, and the buttons that install and remove connectors and versions of Spark."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse

from queries.domain.errors import Invalid, Missing, Problem
from queries.domain.sparks import SPARKS, Spark, spark_named
from queries.roles import ADMINISTER, VIEW
from queries.selectors.definitions.connectors import Connector, connectors, not_installed
from queries.selectors.definitions.sparks import installed_sparks
from queries.services.downloads.installs import begin_install, last_install, open_install
from queries.services.downloads.removal import remove_connector, remove_spark
from queries.views.console.guard import by, needs
from queries.views.console.shell import told


@dataclass(frozen=True, slots=True)
class Section:
    """The connectors for a version of Spark."""

    spark: Spark
    ready: bool  # whether this host has that version
    connectors: list[Connector]  # installed, or named by an application
    offered: list[Connector]  # that a button or a command installs


@needs(VIEW)
def connector_list(request: HttpRequest) -> HttpResponseBase:
    """List the connectors by version of Spark, with jars, checksums and applications."""
    return _connectors(request)


def _connectors(request: HttpRequest, problem: Problem | None = None) -> HttpResponse:
    """Return the page; with the problem of what was typed, status 422."""
    ready, found = installed_sparks(), connectors()
    named = {(one.spark, one.name) for one in found}
    sections = [
        Section(
            spark=spark,
            ready=spark in ready,
            connectors=[one for one in found if one.spark == spark],
            offered=[one for one in not_installed((spark,)) if (one.spark, one.name) not in named],
        )
        for spark in reversed(SPARKS)
    ]
    context: dict[str, Any] = {
        "sections": sections,
        "any": any(one.ready for one in found),
        "installing": open_install(),
        "last": last_install(),
        "host": settings.HEADGATE_HOST,
        "problem": problem,
        "typed": request.POST,
        "versions": list(reversed(SPARKS)),
    }
    return render(request, "downloads/connectors.html", context, status=422 if problem else 200)


@needs(ADMINISTER, "POST")
def install_connector(request: HttpRequest) -> HttpResponseBase:
    """Make the worker install a connector by its recipe or by Maven coordinates."""
    name = request.POST.get("name", "").strip()
    if not name:
        missing = Problem("name", "", "The connector needs a name.")
        return _connectors(request, missing)
    try:
        operation = begin_install(
            spark=request.POST.get("spark", ""),
            connector=name,
            coordinates=request.POST.get("coordinates", "").split(),
            **by(request),
        )
    except Invalid as error:
        return _connectors(request, error.problems[0])
    return redirect("operation", operation.uuid)


@needs(ADMINISTER, "POST")
def remove_connector_page(request: HttpRequest, spark: str, name: str) -> HttpResponseBase:
    """Remove a connector that nothing uses."""
    remove_connector(name, _version(spark), **by(request))
    return told(request, f"Removed connector {name} for Spark {spark}.", reverse("connectors"))


@needs(ADMINISTER, "POST")
def install_spark(request: HttpRequest, version: str) -> HttpResponseBase:
    """Make the worker install a version of Spark."""
    return redirect("operation", begin_install(spark=_version(version), **by(request)).uuid)


@needs(ADMINISTER, "POST")
def remove_spark_page(request: HttpRequest, version: str) -> HttpResponseBase:
    """Remove a version of Spark that nothing uses."""
    remove_spark(_version(version), **by(request))
    return told(request, f"Removed Spark {version}.", reverse("system"))


def _version(text: str) -> Spark:
    if (found := spark_named(text)) is None:
        raise Missing(f"There is no version {text!r} of Spark.")
    return found


urlpatterns = [
    path("connectors/", connector_list, name="connectors"),
    path("connectors/install/", install_connector, name="connector-install"),
    path(
        "connectors/<str:spark>/<str:name>/remove/", remove_connector_page, name="connector-remove"
    ),
    path("settings/system/sparks/<str:version>/install/", install_spark, name="spark-install"),
    path("settings/system/sparks/<str:version>/remove/", remove_spark_page, name="spark-remove"),
]
