"""The lineage of all queries, and of one query, as a picture and as a table."""

from collections.abc import Collection
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path

from queries.domain.definitions.labels import parse_filters
from queries.domain.lineage import picture
from queries.domain.lineage.graph import Graph
from queries.domain.lineage.picture import picture_of
from queries.roles import VIEW
from queries.selectors.lineage import incomplete, lineage, selected
from queries.selectors.supervision.applications import applications
from queries.views.console.shell import needs
from queries.views.supervision.query_list import OFFERED_AT_MOST
from queries.views.supervision.query_page import head

#: Rows of the table; REST returns more.
ROWS = 500


@needs(VIEW)
def lineage_page(request: HttpRequest) -> HttpResponse:
    """Show which queries read the output of other queries."""
    sent = {name: request.GET.get(name, "").strip() for name in ("q", "application", "label")}
    graph, names = selected(lineage(), parse_filters(sent))
    application = sent["application"]
    offered = applications().values_list("name", flat=True)[: OFFERED_AT_MOST + 1]
    context = _context(graph, names) | {
        "search": sent["q"],
        "application": application,
        "label": sent["label"],
        "applications": sorted({*offered, *([application] if application else [])}),
        "filtered": any(sent.values()),
    }
    return render(request, "lineage/list.html", context)


@needs(VIEW)
def lineage_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show everything upstream and downstream of one query."""
    context = head(request, name, "query-lineage")
    graph = lineage()
    part = graph.of(graph.connected([name]))
    context |= _context(part, {name}) | {
        "upstream": graph.upstream([name]),
        "downstream": graph.downstream([name]),
        "upstream_incomplete": incomplete(graph.unsure_upstream([name])),
        "downstream_incomplete": incomplete(graph.unsure_downstream([name])),
    }
    return render(request, "lineage/of_query.html", context)


def _context(graph: Graph, focus: Collection[str]) -> dict[str, Any]:
    unknown = sorted(graph.unknown.items())
    return {
        "picture": picture_of(graph, focus),
        "sizes": {"width": picture.WIDTH, "height": picture.HEIGHT},
        "most_nodes": picture.MOST_NODES,
        "edges": graph.edges[:ROWS],
        "more_edges": max(0, len(graph.edges) - ROWS),
        "unknown": unknown[:ROWS],
        "more_unknown": max(0, len(unknown) - ROWS),
    }


urlpatterns = [
    path("lineage/", lineage_page, name="lineage"),
    path("queries/<query:name>/lineage/", lineage_tab, name="query-lineage"),
]
