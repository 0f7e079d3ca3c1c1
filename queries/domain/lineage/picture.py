"""Lay out a lineage graph: queries and datasets in columns; data flows to the right."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from queries.domain.lineage.datasets import KnownFrom
from queries.domain.lineage.graph import Edge, Graph

#: Sizes in SVG units, which are CSS pixels at 100 %.
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 180, 30, 56, 12, 12
#: Characters of a label that fit into a node.
LABEL = 23
#: More nodes than this are not drawn: nobody could follow the lines.
MOST_NODES = 400
_SWEEPS = 6  # orderings of the columns; more hardly remove any crossing


@dataclass(frozen=True, slots=True)
class PictureNode:
    """One query or dataset in the picture; x and y are its upper left corner."""

    kind: str  # "query", or a `DatasetKind`
    name: str
    store: str
    x: int
    y: int
    is_focus: bool = False

    @property
    def label(self) -> str:
        """Return its name, shortened in the middle."""
        if len(self.name) <= LABEL:
            return self.name
        head = LABEL // 3
        return f"{self.name[:head]}…{self.name[head + 1 - LABEL :]}"


@dataclass(frozen=True, slots=True)
class PictureEdge:
    """One edge in the picture."""

    d: str  # the path's data, as in SVG
    edge: Edge

    @property
    def is_reported(self) -> bool:
        """Return whether only Spark's report shows this edge."""
        return self.edge.known_from is KnownFrom.SPARK


@dataclass(frozen=True, slots=True)
class Picture:
    """A laid-out graph; width and height are 0 if there are too many nodes to draw."""

    nodes: tuple[PictureNode, ...]
    lines: tuple[PictureEdge, ...]
    width: int
    height: int
    count: int  # of nodes, drawn or not


_Key = tuple[str, str, str]  # kind, store, name
_QUERY = "query"


def picture_of(graph: Graph, focus: Collection[str] = ()) -> Picture:
    """Return the picture of a graph; queries in `focus` are marked."""
    flows = {edge: _ends(edge) for edge in graph.edges}
    keys = sorted({key for ends in flows.values() for key in ends})
    if not keys or len(keys) > MOST_NODES:
        return Picture((), (), 0, 0, len(keys))
    columns = _columns(keys, set(flows.values()))
    at = _places(columns, flows.values())
    nodes = tuple(
        PictureNode(
            kind, name.removeprefix("file://"), store, *at[kind, store, name], name in focus
        )
        if kind != _QUERY
        else PictureNode(kind, name, store, *at[kind, store, name], name in focus)
        for kind, store, name in keys
    )
    lines = tuple(
        PictureEdge(_curve(at[start], at[end]), edge) for edge, (start, end) in flows.items()
    )
    width = MARGIN + max(x for x, _ in at.values()) + WIDTH
    height = MARGIN + max(y for _, y in at.values()) + HEIGHT
    return Picture(nodes, lines, width, height, len(keys))


def _places(
    columns: list[list[_Key]], flows: Iterable[tuple[_Key, _Key]]
) -> dict[_Key, tuple[int, int]]:
    """Return the upper left corner of each node: as near as possible to its inputs."""
    before: dict[_Key, list[_Key]] = defaultdict(list)
    for start, end in flows:
        before[end].append(start)
    at: dict[_Key, tuple[int, int]] = {}
    for number, column in enumerate(columns):
        y = MARGIN
        for key in column:
            rows = [at[source][1] for source in before[key] if source in at]
            y = max(y, sum(rows) // len(rows) if rows else 0)
            at[key] = (MARGIN + number * (WIDTH + GAP_X), y)
            y += HEIGHT + GAP_Y
    return at


def _ends(edge: Edge) -> tuple[_Key, _Key]:
    """Return the nodes between which the data flows."""
    query = (_QUERY, "", edge.query)
    dataset = (str(edge.dataset.kind), edge.dataset.store, edge.dataset.name)
    return (query, dataset) if edge.writes else (dataset, query)


def _columns(keys: list[_Key], flows: Iterable[tuple[_Key, _Key]]) -> list[list[_Key]]:
    after: dict[_Key, list[_Key]] = defaultdict(list)
    before: dict[_Key, list[_Key]] = defaultdict(list)
    for start, end in sorted(flows):
        after[start].append(end)
        before[end].append(start)
    level = _levels(keys, after)
    for key in keys:  # what nothing writes is drawn next to its reader
        if not before[key]:
            level[key] = max(0, min(level[reader] for reader in after[key]) - 1)
    column_of_level = {number: at for at, number in enumerate(sorted(set(level.values())))}
    columns: list[list[_Key]] = [[] for _ in column_of_level]
    for key in sorted(keys, key=lambda reader: (reader[2], reader)):
        columns[column_of_level[level[key]]].append(key)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        near = before if forward else after
        for column in columns if forward else reversed(columns):
            _sort(column, near, {key: row for reader in columns for row, key in enumerate(reader)})
    return columns


def _levels(keys: list[_Key], after: Mapping[_Key, list[_Key]]) -> dict[_Key, int]:
    """Return the column of each node: the longest way to it; the flow that closes a circle is
    ignored.
    """
    done: list[_Key] = []
    state: dict[_Key, bool] = {}  # True while the walk is below it
    back: set[tuple[_Key, _Key]] = set()
    for root in keys:
        if root in state:
            continue
        state[root] = True
        walk = [(root, iter(after.get(root, ())))]
        while walk:
            key, left = walk[-1]
            other = next(left, None)
            if other is None:
                state[key] = False
                done.append(key)
                walk.pop()
            elif other not in state:
                state[other] = True
                walk.append((other, iter(after.get(other, ()))))
            elif state[other]:
                back.add((key, other))
    level = dict.fromkeys(keys, 0)
    for key in reversed(done):
        for other in after.get(key, ()):
            if (key, other) not in back:
                level[other] = max(level[other], level[key] + 1)
    return level


def _sort(column: list[_Key], near: Mapping[_Key, list[_Key]], row: Mapping[_Key, int]) -> None:
    """Sort a column by the mean row of each node's neighbours, which removes most crossings."""

    def middle(key: _Key) -> float:
        rows = [row[neighbour] for neighbour in near.get(key, ())]
        return sum(rows) / len(rows) if rows else row[key]

    column.sort(key=lambda key: (middle(key), row[key]))


def _curve(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return a curve from a node's right side to the left side of another."""
    x1, y1 = start[0] + WIDTH, start[1] + HEIGHT // 2
    x2, y2 = end[0], end[1] + HEIGHT // 2
    bend = max(GAP_X // 2, abs(x2 - x1) // 2)
    return f"M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}"
