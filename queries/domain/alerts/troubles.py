"""What is wrong now, as evidence, and which of it is one trouble.

Troubles are looked at again and again, so that none is missed where a worker dies: an incident
lasts while its trouble is seen. Where one cause shows in several ways, the cause is told and not
its signs: a source that is away, a driver that dies, a host that is silent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from queries.domain.alerts.kinds import IncidentKind

#: Names of affected queries that are kept; beyond it they are counted.
NAMED = 20


@dataclass(frozen=True, slots=True)
class Subject:
    """A query or an application: its row and its name."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """One trouble as it was seen: what it is, with the evidence in numbers."""

    kind: IncidentKind
    fingerprint: str  # the same for what is one trouble
    title: str
    detail: str = ""
    queries: tuple[Subject, ...] = ()  # affected; in the order of their names once grouped
    application: Subject | None = None
    host: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    group: int | None = None  # failure group
    run: int | None = None

    @property
    def query(self) -> Subject | None:
        """The query that it is of, where it is of one alone."""
        return self.queries[0] if len(self.queries) == 1 else None


def of_query(kind: IncidentKind, query: int) -> str:
    """Return the fingerprint of a query's trouble."""
    return f"{kind}:query:{query}"


#: What a query shows while its source is away, its driver dies, or its host is silent.
_SIGNS = frozenset(
    {
        IncidentKind.CRASH_LOOP,
        IncidentKind.STALLED,
        IncidentKind.ZOMBIE,
        IncidentKind.BLIND,
        IncidentKind.LAGGING,
    }
)
#: Kinds that explain the signs of the queries that they affect.
_CAUSES = frozenset(
    {IncidentKind.SOURCE_UNREACHABLE, IncidentKind.DRIVER_DEATHS, IncidentKind.HOST_SILENT}
)
#: A query that is held, and explains why it goes on failing or does not advance.
_HOLDS = frozenset({IncidentKind.FAILED, IncidentKind.BROKEN})


def grouped(seen: Iterable[Trouble]) -> list[Trouble]:
    """Return the troubles that are told: one for each fingerprint, without signs of another.

    Titles of troubles of several queries say how many they are.
    """
    together: dict[str, list[Trouble]] = {}
    for trouble in seen:
        together.setdefault(trouble.fingerprint, []).append(trouble)
    merged = [_merged(same) for same in together.values()]
    explained = {
        query.id for one in merged if one.kind in _CAUSES | _HOLDS for query in one.queries
    }
    return [
        one
        for one in merged
        if one.kind not in _SIGNS or any(query.id not in explained for query in one.queries)
    ]


def _merged(same: list[Trouble]) -> Trouble:
    first = same[0]
    if len(same) == 1:
        return first
    queries = {query.id: query for one in same for query in one.queries}
    in_order = tuple(sorted(queries.values(), key=lambda query: query.name))
    applications = {one.application for one in same}
    return replace(
        first,
        title=f"{first.title}: {len(in_order):,} queries",
        queries=in_order,
        application=first.application if len(applications) == 1 else None,
        labels={
            name: value
            for name, value in first.labels.items()
            if all(one.labels.get(name) == value for one in same)
        },
        group=None,
        run=None,
    )
