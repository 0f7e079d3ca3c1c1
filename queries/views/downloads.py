"""The page Connectors, and the buttons that remove connectors and versions of Spark."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import path, reverse

from queries.domain.errors import Missing
from queries.domain.sparks import SPARKS, Spark, command, spark_named
from queries.roles import ADMINISTER, VIEW
from queries.selectors.definitions.connectors import Connector, connectors, not_installed
from queries.selectors.definitions.sparks import installed_sparks
from queries.services.downloads.removal import remove_connector, remove_spark
from queries.views.console.guard import actor_and_now, needs
from queries.views.console.shell import redirect_with_message


@dataclass(frozen=True, slots=True)
class SparkSection:
    """The connectors for a version of Spark."""

    spark: Spark
    command: str  # that installs that version; "" if this host has it
    connectors: list[Connector]  # installed, or named by an application
    offered: list[Connector]  # that a command installs


@needs(VIEW)
def connector_list(request: HttpRequest) -> HttpResponseBase:
    """List the connectors by version of Spark, with jars, checksums and applications."""
    ready, all_connectors = installed_sparks(), connectors()
    named = {(connector.spark, connector.name) for connector in all_connectors}
    sections = [
        SparkSection(
            spark=spark,
            command="" if spark in ready else command(spark),
            connectors=[connector for connector in all_connectors if connector.spark == spark],
            offered=[
                connector
                for connector in not_installed((spark,))
                if (connector.spark, connector.name) not in named
            ],
        )
        for spark in reversed(SPARKS)
    ]
    context: dict[str, Any] = {
        "sections": sections,
        "any": any(connector.ready for connector in all_connectors),
        "host": settings.HEADGATE_HOST,
        "newest": SPARKS[-1],
    }
    return render(request, "downloads/connectors.html", context)


@needs(ADMINISTER, "POST")
def remove_connector_page(request: HttpRequest, spark: str, name: str) -> HttpResponseBase:
    """Remove a connector that nothing uses."""
    remove_connector(name, _version(spark), **actor_and_now(request))
    return redirect_with_message(
        request, f"Removed connector {name} for Spark {spark}.", reverse("connectors")
    )


@needs(ADMINISTER, "POST")
def remove_spark_page(request: HttpRequest, version: str) -> HttpResponseBase:
    """Remove a version of Spark that nothing uses."""
    remove_spark(_version(version), **actor_and_now(request))
    return redirect_with_message(request, f"Removed Spark {version}.", reverse("system"))


def _version(text: str) -> Spark:
    if (spark := spark_named(text)) is None:
        raise Missing(f"There is no version {text!r} of Spark.")
    return spark


urlpatterns = [
    path("connectors/", connector_list, name="connectors"),
    path(
        "connectors/<str:spark>/<str:name>/remove/", remove_connector_page, name="connector-remove"
    ),
    path("settings/system/sparks/<str:version>/remove/", remove_spark_page, name="spark-remove"),
]
