"""Current problems with their evidence, and how they are grouped.

Every check detects the problems again, so none is missed if a worker dies: an incident lasts as
long as its problem is detected. If one cause has several symptoms, only the cause is reported: an
unreachable source, a driver that keeps dying, a host without a heartbeat.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from queries.domain.alerts.explanations import joined
from queries.domain.alerts.kinds import IncidentKind

#: Maximum number of affected queries listed by name; the others are only counted.
NAMED = 20


@dataclass(frozen=True, slots=True)
class AlertSubject:
    """A query or an application: its row ID and its name."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class AlertCondition:
    """A detected problem, with its evidence in numbers."""

    kind: IncidentKind
    fingerprint: str  # shared by all detections of the same problem
    title: str
    detail: str = ""
    queries: tuple[AlertSubject, ...] = ()  # affected queries; sorted by name after grouping
    application: AlertSubject | None = None
    host: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    group: int | None = None  # failure group
    run: int | None = None

    @property
    def query(self) -> AlertSubject | None:
        """The query that the problem belongs to, if there is exactly one."""
        return self.queries[0] if len(self.queries) == 1 else None


#: Kinds that report one loss of a query, the most certain first. They share an incident: the loss
#: is foreseen, fails the query, and is recorded.
LOSS = (IncidentKind.FAILED, IncidentKind.RECORDS_LOST, IncidentKind.AT_RISK)
_SHARED = frozenset({IncidentKind.RECORDS_LOST, IncidentKind.AT_RISK})


def of_query(kind: IncidentKind, query: int, *, loses: bool = False) -> str:
    """Return the fingerprint for a query's problem; `loses`: its source has lost data."""
    if loses or kind in _SHARED:
        kind = IncidentKind.RECORDS_LOST
    return f"{kind}:query:{query}"


def of_disk(host: str, mount: str) -> str:
    """Return the fingerprint for a full file system; "" is the one of HEADGATE_HOME."""
    return f"{IncidentKind.DISK}:{host}:{mount}"[:200] if mount else IncidentKind.DISK.value


#: Symptoms that a query shows if its source is unreachable, its driver keeps dying, or its host is
#: silent.
_SIGNS = frozenset(
    {
        IncidentKind.CRASH_LOOP,
        IncidentKind.STALLED,
        IncidentKind.ZOMBIE,
        IncidentKind.BLIND,
        IncidentKind.LAGGING,
    }
)
#: Kinds that explain the symptoms of the queries they affect.
_CAUSES = frozenset(
    {
        *(IncidentKind.SOURCE_UNREACHABLE, IncidentKind.DRIVER_DEATHS, IncidentKind.HOST_SILENT),
        IncidentKind.DISK,
    }
)
#: The query is held, which explains why it keeps failing or makes no progress.
_HOLDS = frozenset({IncidentKind.FAILED, IncidentKind.BROKEN})


def grouped(observed: Iterable[AlertCondition]) -> list[AlertCondition]:
    """Return the problems to report: one per fingerprint, omitting symptoms of other problems.

    If a problem affects several queries, its title says how many.
    """
    together: dict[str, list[AlertCondition]] = {}
    for trouble in observed:
        together.setdefault(trouble.fingerprint, []).append(trouble)
    merged = [_merged(same) for same in together.values()]
    explained = {
        query.id
        for condition in merged
        if condition.kind in _CAUSES | _HOLDS
        for query in condition.queries
    }
    return [
        condition
        for condition in merged
        if condition.kind not in _SIGNS
        or any(query.id not in explained for query in condition.queries)
    ]


def _merged(same: list[AlertCondition]) -> AlertCondition:
    if len(same) == 1:
        return same[0]
    # What is seen without a query, such as a full disk, has none of a query's labels to match.
    of_queries = [condition for condition in same if condition.queries] or same
    queries = {query.id: query for condition in of_queries for query in condition.queries}
    in_order = tuple(sorted(queries.values(), key=lambda query: query.name))
    first = min(
        of_queries,
        key=lambda condition: LOSS.index(condition.kind) if condition.kind in LOSS else 0,
    )
    if len(in_order) == 1:
        return replace(first, detail=joined(*(condition.detail for condition in (first, *same))))
    applications = {condition.application for condition in of_queries}
    return replace(
        first,
        title=f"{first.title}: {len(in_order):,} queries",
        queries=in_order,
        application=first.application if len(applications) == 1 else None,
        labels={
            name: value
            for name, value in first.labels.items()
            if all(condition.labels.get(name) == value for condition in of_queries)
        },
        group=None,
        run=None,
    )
