"""Current problems with their evidence, how they are grouped, and when an incident opens and
closes.

Every check detects the problems again, so none is missed if a worker dies: an incident lasts as
long as its problem is detected. If one cause has several symptoms, only the cause is reported: an
unreachable source, a driver that keeps dying, a host without a heartbeat.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from queries.domain.alerts.explanations import joined
from queries.domain.alerts.forms import IncidentKind

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
        IncidentKind.QUERY_MISSING,
        IncidentKind.NO_TELEMETRY,
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
#: The query is not restarted, which explains why it keeps failing or makes no progress.
_BLOCKED = frozenset({IncidentKind.FAILED, IncidentKind.ON_HOLD})


def grouped(conditions: Iterable[AlertCondition]) -> list[AlertCondition]:
    """Return the problems to report: one per fingerprint, omitting symptoms of other problems.

    If a problem affects several queries, its title says how many.
    """
    together: dict[str, list[AlertCondition]] = {}
    for trouble in conditions:
        together.setdefault(trouble.fingerprint, []).append(trouble)
    merged = [_merged(same) for same in together.values()]
    explained = {
        query.id
        for condition in merged
        if condition.kind in _CAUSES | _BLOCKED
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


#: How long a problem must be gone before its incident closes, so a flapping problem is one
#: incident.
QUIET_BEFORE_CLOSING = timedelta(minutes=5)
#: A problem that returns within this time reopens its incident.
REOPENED_WITHIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class RecordedIncident:
    """An incident that is open, or that was closed within `REOPENED_WITHIN`."""

    id: int
    fingerprint: str
    open: bool
    title: str
    detail: str
    affected: int
    seen_at: datetime
    quiet_since: datetime | None = None
    closed_by: str = ""  # a user; "": automatically


class IncidentAction(StrEnum):
    """What to do with an incident."""

    OPEN = "open"
    REOPEN = "reopen"
    UPDATE = "update"  # its evidence has changed, or its problem came back before it closed
    PERSISTS = "seen"  # its problem persists
    QUIET = "quiet"  # its problem has just cleared
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class IncidentChange:
    """One action: its incident (None: a new one), and the problem that caused it."""

    act: IncidentAction
    incident: RecordedIncident | None = None
    trouble: AlertCondition | None = None


def changes(
    recorded_incidents: Iterable[RecordedIncident],
    troubles: Iterable[AlertCondition],
    *,
    now: datetime,
    quiet_period: timedelta = QUIET_BEFORE_CLOSING,
) -> list[IncidentChange]:
    """Return the changes to make; each incident and each problem appears in at most one change.

    `recorded_incidents` contains the open incidents and, for each fingerprint, the newest recently
    closed one. An incident closed by a user stays closed until its problem has been gone for
    `quiet_period`.
    """
    by_fingerprint: dict[str, RecordedIncident] = {}
    for incident in recorded_incidents:
        if incident.open or incident.fingerprint not in by_fingerprint:
            by_fingerprint[incident.fingerprint] = incident
    done: list[IncidentChange] = []
    for trouble in troubles:
        done.append(
            _change_for(by_fingerprint.pop(trouble.fingerprint, None), trouble, now, quiet_period)
        )
    for incident in by_fingerprint.values():
        if not incident.open:
            continue
        if incident.quiet_since is None:
            done.append(IncidentChange(IncidentAction.QUIET, incident))
        elif now - incident.quiet_since >= quiet_period:
            done.append(IncidentChange(IncidentAction.CLOSE, incident))
    return done


def _change_for(
    incident: RecordedIncident | None,
    trouble: AlertCondition,
    now: datetime,
    quiet_period: timedelta,
) -> IncidentChange:
    if incident is None:
        return IncidentChange(IncidentAction.OPEN, None, trouble)
    if not incident.open:
        lasts = incident.closed_by and now - incident.seen_at < quiet_period
        return IncidentChange(
            IncidentAction.PERSISTS if lasts else IncidentAction.REOPEN, incident, trouble
        )
    before = (incident.title, incident.detail, incident.affected)
    now_so = (trouble.title, trouble.detail, len(trouble.queries))
    if incident.quiet_since is not None or before != now_so:
        return IncidentChange(IncidentAction.UPDATE, incident, trouble)
    return IncidentChange(IncidentAction.PERSISTS, incident, trouble)


def names_of(trouble: AlertCondition) -> list[str]:
    """Return the names of the queries that a problem affects, up to `NAMED`."""
    return [query.name for query in trouble.queries[:NAMED]]
