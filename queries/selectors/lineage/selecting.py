"""Select a part of the lineage by the names, application and labels of queries."""

from queries.domain.definitions.selection import Selection
from queries.domain.lineage.graph import Graph
from queries.models.definitions import Query
from queries.selectors.supervision.query_filters import matching


def selected(graph: Graph, selection: Selection) -> tuple[Graph, frozenset[str]]:
    """Return the part of a graph with the matching queries and their direct neighbours.

    Also return the names of the matching queries; without terms, the whole graph and no names.
    """
    if not selection:
        return graph, frozenset()
    rows = matching(Query.objects.filter(archived_at=None), selection)
    names = frozenset(rows.values_list("name", flat=True))
    return graph.of(graph.near(names)), names
