"""Select a part of the lineage by the names, application and labels of queries."""

from collections.abc import Mapping

from django.db.models import Q

from queries.domain.lineage.graph import Graph
from queries.models.definitions import Query
from queries.selectors.labels import labelled
from queries.selectors.supervision.query_filters import LABELS


def selected(
    graph: Graph,
    *,
    search: str = "",
    application: str = "",
    labels: Mapping[str, str | None] | None = None,
) -> tuple[Graph, frozenset[str]]:
    """Return the part of a graph with the matching queries and their direct neighbours.

    Also return the names of the matching queries; without a filter, the whole graph and no names.
    """
    if not (search or application or labels):
        return graph, frozenset()
    rows = Query.objects.filter(archived_at=None)
    if search:
        own = Q(name__icontains=search)
        rows = rows.filter(own | Q(application__name__icontains=search))
    if application:
        rows = rows.filter(application__name=application)
    rows = labelled(rows, labels or {}, *LABELS)
    names = frozenset(rows.values_list("name", flat=True))
    return graph.of(graph.near(names)), names
