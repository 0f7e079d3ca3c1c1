"""The graph of queries and datasets: who reads whose output, and in which order they follow.

Datasets are joined when they are the same data: topics of one Kafka cluster, a path and a folder in
it, a pattern and the topics that it matches. Cycles are allowed: every walk visits a query once.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import product

from queries.domain.lineage.datasets import Dataset, DatasetKind, DatasetUse, KnownFrom, Uses

#: Returns whether a pattern of topics (`subscribePattern`) matches a topic's whole name.
Matches = Callable[[str, str], bool]
#: Alternatives to which the braces of one path component are expanded; more match nothing.
_ALTERNATIVES = 64


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """One query reads or writes one dataset."""

    query: str
    dataset: Dataset
    writes: bool
    known_from: KnownFrom
    as_of: datetime | None = field(default=None, compare=False)  # of Spark's report
    via: str = field(default="", compare=False)  # the pattern or path, if it is not the dataset's


@dataclass(frozen=True, slots=True)
class Graph:
    """All known edges, and the unknown parts of each query."""

    edges: tuple[Edge, ...] = ()
    unknown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # query -> sentences
    after: Mapping[str, frozenset[str]] = field(default_factory=dict)  # query -> its readers
    before: Mapping[str, frozenset[str]] = field(default_factory=dict)  # query -> its writers
    unread: frozenset[str] = frozenset()  # queries of which not all reads are known
    unwritten: frozenset[str] = frozenset()  # queries of which not all writes are known

    def downstream(self, queries: Iterable[str]) -> list[str]:
        """Return the queries that read these queries' output, directly or not: nearest first."""
        return _reached(self.after, queries)

    def upstream(self, queries: Iterable[str]) -> list[str]:
        """Return the queries that write these queries' inputs, directly or not: nearest first."""
        return _reached(self.before, queries)

    def unsure_downstream(self, queries: Iterable[str]) -> list[str]:
        """Return the queries that may make `downstream` incomplete."""
        start = list(queries)
        covered = {*start, *self.downstream(start)}
        return sorted(self.unread - covered | self.unwritten & covered)

    def unsure_upstream(self, queries: Iterable[str]) -> list[str]:
        """Return the queries that may make `upstream` incomplete."""
        start = list(queries)
        covered = {*start, *self.upstream(start)}
        return sorted(self.unwritten - covered | self.unread & covered)

    def unsure_near(self, queries: Iterable[str]) -> list[str]:
        """Return those of these queries and their neighbours that are not fully known."""
        return sorted(self.near(queries) & (self.unread | self.unwritten))

    def connected(self, queries: Iterable[str]) -> frozenset[str]:
        """Return these queries with everything upstream and downstream of them."""
        start = list(queries)
        return frozenset({*start, *self.downstream(start), *self.upstream(start)})

    def near(self, queries: Iterable[str]) -> frozenset[str]:
        """Return these queries with their direct writers and readers."""
        neighbours = set(queries)
        for name in tuple(neighbours):
            neighbours |= self.after.get(name, frozenset()) | self.before.get(name, frozenset())
        return frozenset(neighbours)

    def of(self, queries: Collection[str]) -> "Graph":
        """Return the part of the graph that concerns these queries alone."""
        return Graph(
            tuple(edge for edge in self.edges if edge.query in queries),
            {name: reasons for name, reasons in self.unknown.items() if name in queries},
            _within(self.after, queries),
            _within(self.before, queries),
            self.unread & set(queries),
            self.unwritten & set(queries),
        )


def graph_of(uses: Mapping[str, Uses], matches: Matches) -> Graph:
    """Return the graph of queries, by name."""
    joined = _Clusters(uses.values())
    written: dict[Dataset, set[str]] = defaultdict(set)
    edges: set[Edge] = set()
    for query, query_uses in uses.items():
        for use in query_uses.writes:
            dataset = joined.of(use.dataset)
            written[dataset].add(query)
            edges.add(Edge(query, dataset, True, use.known_from, use.as_of))
    index = _WrittenIndex(written, matches)
    after: dict[str, set[str]] = defaultdict(set)
    for query, query_uses in uses.items():
        for use in query_uses.reads:
            dataset = joined.of(use.dataset)
            for match in index.read_by(replace(use, dataset=dataset)) or [dataset]:
                via = use.dataset.title if match.name != use.dataset.name else ""
                edges.add(Edge(query, match, False, use.known_from, use.as_of, via))
                for writer in written.get(match, ()):
                    if writer != query:
                        after[writer].add(query)
    before: dict[str, set[str]] = defaultdict(set)
    for writer, readers in after.items():
        for reader in readers:
            before[reader].add(writer)
    return Graph(
        tuple(sorted(edges)),
        {query: query_uses.unknown for query, query_uses in uses.items() if query_uses.unknown},
        {query: frozenset(query_uses) for query, query_uses in after.items()},
        {query: frozenset(query_uses) for query, query_uses in before.items()},
        frozenset(query for query, query_uses in uses.items() if query_uses.unread),
        frozenset(query for query, query_uses in uses.items() if query_uses.unwritten),
    )


def _reached(next_of: Mapping[str, frozenset[str]], start: Iterable[str]) -> list[str]:
    starts = list(dict.fromkeys(start))
    visited, ordered, last = set(starts), [], starts
    while last:
        last = sorted({neighbour for name in last for neighbour in next_of.get(name, ())} - visited)
        visited |= set(last)
        ordered += last
    return ordered


def _within(
    next_of: Mapping[str, frozenset[str]], queries: Collection[str]
) -> dict[str, frozenset[str]]:
    links = {name: next_of[name] & set(queries) for name in queries if name in next_of}
    return {name: names for name, names in links.items() if names}


class _Clusters:
    """Joins the broker lists that share a broker: they name one Kafka cluster.

    A topic whose brokers Spark does not report belongs to the only cluster that is known to have a
    topic of this name; if there are several, it stays on its own.
    """

    def __init__(self, uses: Iterable[Uses]) -> None:
        self._parent: dict[str, str] = {}
        self._named: dict[str, set[str]] = defaultdict(set)  # topic -> its clusters
        topics = {
            use.dataset
            for query_uses in uses
            for use in (*query_uses.reads, *query_uses.writes)
            if use.dataset.kind is DatasetKind.TOPIC and use.dataset.store
        }
        for topic in sorted(topics):
            first, *rest = _brokers(topic.store)
            for other in rest:
                self._parent[self._root(other)] = self._root(first)
        for topic in sorted(topics):
            self._named[topic.name].add(self._cluster(topic.store))

    def of(self, dataset: Dataset) -> Dataset:
        """Return the dataset under the name of its cluster."""
        if dataset.kind is not DatasetKind.TOPIC:
            return dataset
        if dataset.store:
            return replace(dataset, store=self._cluster(dataset.store))
        clusters = self._named.get(dataset.name, set())
        return replace(dataset, store=next(iter(clusters))) if len(clusters) == 1 else dataset

    def _cluster(self, store: str) -> str:
        return self._root(_brokers(store)[0])

    def _root(self, broker: str) -> str:
        while (above := self._parent.get(broker, broker)) != broker:
            self._parent[broker] = self._parent.get(above, above)
            broker = above
        return broker


def _brokers(store: str) -> list[str]:
    """Return the addresses of a broker list, sorted, without listener names."""
    addresses = (address.strip().rpartition("://")[2] for address in store.split(","))
    return sorted(
        {
            address if address.startswith(("env:", "file:")) else address.lower()
            for address in addresses
        }
    )


class _WrittenIndex:
    """The written datasets, indexed for reads by name, by pattern and by folder."""

    def __init__(self, written: Iterable[Dataset], matches: Matches) -> None:
        self._matches = matches
        self._all = set(written)
        self._topics: dict[str, list[Dataset]] = defaultdict(list)  # by cluster
        self._below: dict[str, list[Dataset]] = defaultdict(list)  # a folder -> paths below it
        for dataset in sorted(self._all):
            if dataset.kind is DatasetKind.TOPIC:
                self._topics[dataset.store].append(dataset)
            elif dataset.kind is DatasetKind.PATH:
                for folder in _above(dataset.name):
                    self._below[folder].append(dataset)
        self._readers: dict[DatasetUse, list[Dataset]] = {}

    def read_by(self, use: DatasetUse) -> list[Dataset]:
        """Return the written datasets that a use reads."""
        key = replace(use, known_from=KnownFrom.DEFINITION, as_of=None)
        if key not in self._readers:
            self._readers[key] = self._find(use)
        return self._readers[key]

    def _find(self, use: DatasetUse) -> list[Dataset]:
        dataset = use.dataset
        if dataset.kind is DatasetKind.PATH:
            return self._paths(use)
        if use.pattern:
            topics = self._topics.get(dataset.store, ())
            return [topic for topic in topics if self._matches(dataset.name, topic.name)]
        return [dataset] if dataset in self._all else []

    def _paths(self, use: DatasetUse) -> list[Dataset]:
        name = use.dataset.name
        fixed = _fixed(name) if use.pattern else name
        near = [Dataset(DatasetKind.PATH, "", path) for path in (*_above(fixed), fixed)]
        candidates = [path for path in near if path in self._all]
        candidates += self._below.get(fixed, ())
        return [path for path in candidates if _reads(use, path.name)]


def _reads(use: DatasetUse, written: str) -> bool:
    """Return whether a file source at a path reads the files that a sink writes to a folder.

    It does if it reads the folder or something in it. From a folder inside the path, it reads the
    partitions (`day=1`), and everything if the option recursiveFileLookup is true.
    """
    pattern, folder = use.dataset.name.split("/"), written.split("/")
    if any(not _fits(*pair) for pair in zip(pattern, folder, strict=False)):
        return False
    inside = folder[len(pattern) :]
    return use.recursive or all("=" in part for part in inside)


def _fits(pattern: str, part: str) -> bool:
    return pattern == part or any(
        fnmatchcase(part, alternative) for alternative in _alternatives(pattern)
    )


def _alternatives(pattern: str) -> list[str]:
    """Return Hadoop's wildcards of one path component as patterns for `fnmatch`."""
    pieces: list[list[str]] = []
    rest, count = pattern.replace("[^", "[!"), 1
    while "{" in rest and "}" in rest.partition("{")[2]:
        before, _, rest = rest.partition("{")
        inside, _, rest = rest.partition("}")
        pieces += [[before], inside.split(",")]
        count *= len(pieces[-1])
    if count > _ALTERNATIVES:
        return []
    return ["".join(parts) for parts in product(*pieces, [rest])]


def _fixed(path: str) -> str:
    """Return the part of a path before the first component with a wildcard."""
    parts = path.split("/")
    at = next(number for number, part in enumerate(parts) if set(part) & set("*?[]{}"))
    return "/".join(parts[:at])


def _above(path: str) -> list[str]:
    """Return the folders that contain a path, outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(3, len(parts))]


Follows = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Order:
    """Which units must come before others."""

    before: Mapping[str, frozenset[str]]  # unit -> the units that precede it; others have none
    circles: tuple[tuple[str, ...], ...] = ()  # units that read each other's data


def order_of(units: Mapping[str, Iterable[str]], after: Follows) -> Order:
    """Return the order of units, each with its queries; `after` maps a query to its readers.

    A unit precedes another also if only queries outside of all units connect them. Units in a
    circle do not precede each other.
    """
    unit_of = {query: unit for unit, queries in units.items() for query in queries}
    follows = {unit: _next_units(set(units[unit]), unit_of, after) - {unit} for unit in units}
    parts = _circles(sorted(units), follows)
    part_of = {unit: part for part in parts for unit in part}
    before: dict[str, set[str]] = {}
    for unit, readers in follows.items():
        for reader in readers:
            if part_of[reader] is not part_of[unit]:
                before.setdefault(reader, set()).add(unit)
    return Order(
        {unit: frozenset(earlier) for unit, earlier in before.items()},
        tuple(sorted(tuple(sorted(part)) for part in parts if len(part) > 1)),
    )


def _next_units(queries: set[str], unit_of: Mapping[str, str], after: Follows) -> set[str]:
    """Return the nearest units downstream: a walk ends at the first query of another unit."""
    visited, last, units = set(queries), list(queries), set[str]()
    while last:
        name = last.pop()
        for reader in after.get(name, ()):
            if reader in visited:
                continue
            visited.add(reader)
            if reader in unit_of:
                units.add(unit_of[reader])
            else:
                last.append(reader)
    return units


def _circles(nodes: Sequence[str], follows: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components (Tarjan's algorithm, without recursion)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    open_nodes: list[str] = []
    is_open: set[str] = set()
    components: list[tuple[str, ...]] = []
    for root in nodes:
        if root in number:
            continue
        walk = [(root, iter(sorted(follows[root])))]
        number[root] = low[root] = len(number)
        open_nodes.append(root)
        is_open.add(root)
        while walk:
            node, left = walk[-1]
            other = next(left, None)
            if other is None:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[node])
                if low[node] == number[node]:
                    part = [open_nodes.pop()]
                    while part[-1] != node:
                        part.append(open_nodes.pop())
                    is_open -= set(part)
                    components.append(tuple(part))
            elif other not in number:
                number[other] = low[other] = len(number)
                open_nodes.append(other)
                is_open.add(other)
                walk.append((other, iter(sorted(follows[other]))))
            elif other in is_open:
                low[node] = min(low[node], number[other])
    return components
