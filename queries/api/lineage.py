"""Lineage over REST: which queries read the output of others."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from rest_framework import serializers

from queries.api.base import ApiView
from queries.api.bodies import Body, serializer_for
from queries.api.methods import answers, word
from queries.domain.definitions.labels import parse_filters
from queries.domain.lineage.datasets import DatasetKind, KnownFrom
from queries.domain.lineage.graph import Graph
from queries.selectors.definitions import definitions
from queries.selectors.lineage import lineage, selected

#: Edges in one response.
MOST_EDGES = 5_000
#: Names for the document's enums, which would otherwise be called by their fields (settings).
DATASET_KINDS = [str(kind) for kind in DatasetKind]


@dataclass(frozen=True, slots=True)
class EdgeLine:
    """One edge, flat."""

    query: str
    writes: bool
    kind: DatasetKind
    dataset: str
    store: str
    via: str
    known_from: KnownFrom
    as_of: datetime | None


@dataclass(frozen=True, slots=True)
class UnknownLine:
    """What is unknown about one query."""

    query: str
    says: list[str]


@dataclass(frozen=True, slots=True)
class GraphLines:
    """A part of the graph."""

    edges: list[EdgeLine]
    unknown: list[UnknownLine]
    left_out: int


@dataclass(frozen=True, slots=True)
class QueryLines:
    """One query's part of the graph."""

    query: str
    upstream: list[str]
    downstream: list[str]
    unsure_upstream: list[str]
    unsure_downstream: list[str]
    edges: list[EdgeLine]
    unknown: list[UnknownLine]
    left_out: int


@serializer_for(
    EdgeLine,
    "query writes kind dataset store via known_from as_of",
    known_from=KnownFrom,
)
class EdgeBody(Body):
    """One query reads or writes one dataset.

    writes: True if the query writes the dataset, false if it reads it.
    dataset: A topic, a canonical path, or the name of a table.
    store: The brokers of a topic or the address of a table's catalog; empty for paths, and if
    unknown.
    via: The pattern or path in the definition, if it differs from the dataset's name; else empty.
    known_from: "definition", or "spark": reported in a progress event.
    as_of: When Spark reported it; null if it is known from the definition.
    """

    kind = serializers.ChoiceField(DATASET_KINDS)


@serializer_for(UnknownLine, "query says")
class UnknownBody(Body):
    """What is unknown about one query, in sentences."""


@serializer_for(GraphLines, "edges unknown left_out")
class LineageBody(Body):
    """Which queries read and write which datasets.

    left_out: Edges beyond the first 5,000; filter to see them.
    """


@serializer_for(
    QueryLines,
    "query upstream downstream unsure_upstream unsure_downstream edges unknown left_out",
)
class QueryLineageBody(Body):
    """The lineage of one query: everything upstream and downstream of it.

    upstream: Queries that write its inputs, directly or through others; nearest first. downstream:
    Queries that read its output, directly or through others; nearest first. unsure_upstream:
    Queries whose reads or writes are not all known, so upstream may be incomplete.
    unsure_downstream: The same for downstream. edges: Edges of the query and of its upstream and
    downstream queries. left_out: Edges beyond the first 5,000.
    """


class LineageView(ApiView):
    """The lineage of all queries."""

    @answers(
        "get_lineage",
        LineageBody,
        parameters=[
            word("search", about="Text in the names of queries or applications."),
            word("application"),
            word(
                "label",
                about="team=data, team= for no value, team for any value; repeat for several.",
                many=True,
            ),
        ],
    )
    def get(self) -> GraphLines:
        """Return the queries' inputs and outputs; filters keep the direct neighbours of matches."""
        sent = {name: self.query_param(name) for name in ("search", "application")}
        labels = self.request.query_params.getlist("label")
        graph, _ = selected(lineage(), parse_filters({**sent, "label": labels}))
        return GraphLines(*_lines(graph))


class QueryLineageView(ApiView):
    """The lineage of one query."""

    @answers("get_query_lineage", QueryLineageBody)
    def get(self, name: str) -> QueryLines:
        """Return the queries upstream and downstream of a query, and the data between them."""
        query, graph = definitions.query(name).name, lineage()
        part = graph.of(graph.connected([query]))
        up, down = graph.upstream([query]), graph.downstream([query])
        no_up, no_down = graph.unsure_upstream([query]), graph.unsure_downstream([query])
        return QueryLines(query, up, down, no_up, no_down, *_lines(part, first=query))


def _lines(graph: Graph, first: str = "") -> tuple[list[EdgeLine], list[UnknownLine], int]:
    """Return the edges and the unknown parts of a graph, and how many edges were left out.

    The edges of the query `first` come first.
    """
    edges: Collection[EdgeLine] = [
        EdgeLine(
            edge.query,
            edge.writes,
            edge.dataset.kind,
            edge.dataset.name,
            edge.dataset.store,
            edge.via,
            edge.known_from,
            edge.as_of,
        )
        for edge in sorted(graph.edges, key=lambda edge: (edge.query != first, edge))
    ]
    unknown = [UnknownLine(name, list(reasons)) for name, reasons in sorted(graph.unknown.items())]
    return list(edges)[:MOST_EDGES], unknown[:MOST_EDGES], max(0, len(edges) - MOST_EDGES)
