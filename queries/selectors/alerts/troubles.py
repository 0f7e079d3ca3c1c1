"""What is wrong now, read from the rows that pages show, in a fixed number of database queries.

Only what should run is looked at: a query that somebody has stopped has no trouble. Nothing is
judged here that was not judged before: phases, verdicts, risks, crash loops, the loss ledger,
gaps, hosts, and the health of the system.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q, Sum

from controlplane.health.parts import Part
from listeners.models import Gap
from queries.domain.alerts.kinds import IncidentKind
from queries.domain.alerts.troubles import Subject, Trouble, grouped, of_query
from queries.domain.kafka.options import SERVERS
from queries.domain.reasons import why
from queries.domain.states import (
    HANGING_REASONS,
    HELD_PHASES,
    Desired,
    DriverKind,
    GroupStatus,
    Hold,
    LossKind,
    Phase,
    RunOutcome,
    Verdict,
)
from queries.domain.supervision.culprits import DEATHS
from queries.models.alerts import Channel
from queries.models.applications import Application, Script
from queries.models.checkpoints import Loss
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.failures import FailureGroup
from queries.selectors.failures.occurrences import crash_loops
from queries.selectors.hosts import silent_hosts

#: A broker that misses one look is not away. Its first miss opens nothing.
UNREACHABLE_FOR = timedelta(seconds=10)
#: What happens once (records lost, events gone) is a trouble for so long after it was noticed.
ONCE_FOR = timedelta(minutes=10)
#: A channel that has failed for so long delivers nothing.
DEAD_AFTER = timedelta(minutes=10)

_VERDICTS = {
    Verdict.STALLED: IncidentKind.STALLED,
    Verdict.ZOMBIE: IncidentKind.ZOMBIE,
    Verdict.BLIND: IncidentKind.BLIND,
    Verdict.LAGGING: IncidentKind.LAGGING,
}
#: Parts of the system's health, and the kind of incident that each is. Worker and beat are told of
#: by the watcher alone: without them nothing is looked for here, and one that slept and goes on
#: would judge itself by the signs of life from before.
_PARTS = {
    "disk": IncidentKind.DISK,
    "ingester": IncidentKind.INGESTER_DOWN,
    "data": IncidentKind.DATA_OLD,
}


@dataclass(frozen=True, slots=True)
class _Rows:
    """The queries in question, with what their incidents link to."""

    queries: dict[int, Query]
    groups: dict[int, FailureGroup]  # query -> its newest open group
    runs: dict[int, int]  # query -> its open run

    def trouble(self, kind: IncidentKind, query: Query, detail: str = "") -> Trouble:
        group = self.groups.get(query.pk)
        return Trouble(
            kind=kind,
            fingerprint=of_query(kind, query.pk),
            title=f"{query.name}: {kind.label.lower()}",
            detail=detail or (group.title if group else ""),
            queries=(Subject(query.pk, query.name),),
            application=_subject(query.application),
            host=query.application.host,
            labels={**query.application.labels, **query.labels},
            group=group.pk if group else None,
            run=self.runs.get(query.pk),
        )


def troubles(problems: Iterable[Part], *, now: datetime) -> list[Trouble]:
    """Return what is wrong now, each trouble once (`queries.domain.alerts.troubles.grouped`).

    `problems` are the parts of the system that have one.
    """
    loops = crash_loops(now=now)
    losses, gaps = _losses(now), _gaps(now)
    rows = _rows({*loops, *losses, *gaps})
    found: list[Trouble] = []
    for pk, query in rows.queries.items():
        found += _of_query(rows, query, now)
        if loop := loops.get(pk):
            text = f"{loop.count:,} failures since {loop.first_at:%H:%M} UTC; retried with backoff."
            found.append(rows.trouble(IncidentKind.CRASH_LOOP, query, text))
        found += (rows.trouble(kind, query, text) for kind, text in losses.get(pk, ()))
        if count := gaps.get(pk):
            text = f"The reports of {count:,} batches are lost for good; what they wrote is not."
            found.append(rows.trouble(IncidentKind.EVENTS_DROPPED, query, text))
    found += _driver_deaths()
    found += _hosts()
    found += _of_headgate(problems)
    found += _channels(now)
    return grouped(found)


def _rows(more: Iterable[int]) -> _Rows:
    troubled = (
        Q(phase__in=sorted(HELD_PHASES))
        | Q(verdict__in=list(_VERDICTS))
        | ~Q(risk="")
        | Q(source_unreachable_since__isnull=False)
        | Q(state_full_at__isnull=False)
        | Q(replay_records__gt=settings.ALERT_REPLAY_RECORDS)
        | Q(preflight_fails=True)
        | Q(pk__in=list(more))
    )
    hangs = Q(phase=Phase.STOPPING, phase_reason__in=sorted(HANGING_REASONS))
    rows = Query.objects.filter(archived_at=None).select_related("application", "target_revision")
    # Two reads, each by an index of its own: of ten thousand queries few should run, fewer hang.
    # Sorted here: the database would rather read all of them by name.
    both = (rows.filter(troubled, desired=Desired.RUNNING), rows.filter(hangs))
    found = [query for some in both for query in some.order_by()]
    queries = {query.pk: query for query in sorted(found, key=lambda query: query.name)}
    groups = FailureGroup.objects.filter(query__in=queries, status=GroupStatus.OPEN)
    runs = Run.objects.filter(query__in=queries, outcome=RunOutcome.OPEN).order_by()
    return _Rows(
        queries=queries,
        groups={one.query_id: one for one in groups.order_by("last_seen") if one.query_id},
        runs=dict(runs.values_list("query", "pk")),
    )


def _of_query(rows: _Rows, query: Query, now: datetime) -> Iterator[Trouble]:
    """Yield what the query's own row says."""
    reason = why(query.phase_reason, query.phase_detail).text
    if query.phase == Phase.STOPPING and query.phase_reason in HANGING_REASONS:
        yield rows.trouble(IncidentKind.STUCK_STOP, query, reason)
    if query.desired != Desired.RUNNING:
        return
    if query.hold == Hold.FAILED or query.phase == Phase.FAILED:
        yield rows.trouble(IncidentKind.FAILED, query)
    elif query.phase == Phase.BROKEN:
        yield rows.trouble(IncidentKind.BROKEN, query)
    if (kind := _VERDICTS.get(Verdict(query.verdict) if query.verdict else Verdict.IDLE)) and (
        kind is not IncidentKind.LAGGING or _lasts(query.verdict_since, now)
    ):
        yield rows.trouble(kind, query, _verdict(query))
    if query.risk:
        yield rows.trouble(IncidentKind.AT_RISK, query, query.risk)
    yield from _ahead(rows, query, now)
    away = query.source_unreachable_since
    if away is not None and now - away >= UNREACHABLE_FOR:
        yield _unreachable(rows, query)


def _ahead(rows: _Rows, query: Query, now: datetime) -> Iterator[Trouble]:
    """Yield what `queries.services.alerts.outlook` has seen coming."""
    full = query.state_full_at
    if full is not None and full - now <= timedelta(hours=settings.ALERT_STATE_FULL_HOURS):
        text = f"At the present growth its state fills the driver's memory at {full:%H:%M} UTC."
        yield rows.trouble(IncidentKind.STATE_LIMIT, query, text)
    records = query.replay_records
    if records is not None and records > settings.ALERT_REPLAY_RECORDS:
        text = f"After a crash now {records:,} records would be read and written again."
        yield rows.trouble(IncidentKind.REPLAY, query, text)
    if query.preflight_fails:
        text = "Its newest revision fails the preflight that its application requires: a restart "
        yield rows.trouble(IncidentKind.PREFLIGHT_FAILING, query, f"{text}would be refused.")


def _verdict(query: Query) -> str:
    since = query.verdict_since
    return f"{query.verdict.capitalize()} since {since:%H:%M:%S} UTC." if since else ""


def _lasts(since: datetime | None, now: datetime) -> bool:
    return since is not None and now - since >= timedelta(minutes=settings.ALERT_LAGGING_MINUTES)


def _unreachable(rows: _Rows, query: Query) -> Trouble:
    """Return that a source is away: the same trouble for all queries that read from it."""
    spec = query.target_revision.spec if query.target_revision else {}
    options = [source.get("options", {}) for source in spec.get("sources", ())]
    servers = sorted({str(one[SERVERS]) for one in options if SERVERS in one})
    trouble = rows.trouble(IncidentKind.SOURCE_UNREACHABLE, query)
    name = ", ".join(servers)
    return Trouble(
        kind=trouble.kind,
        fingerprint=f"{trouble.kind}:{name}" if name else trouble.fingerprint,
        title=f"Source {name} unreachable" if name else f"{query.name}: source unreachable",
        detail="It answers neither Headgate nor the queries that read from it; they go on by "
        "themselves once it does.",
        queries=trouble.queries,
        application=trouble.application,
        host=trouble.host,
        labels=trouble.labels,
    )


def _losses(now: datetime) -> dict[int, list[tuple[IncidentKind, str]]]:
    """Return what was written to the loss ledger lately and nobody has accepted, by query."""
    lately = Loss.objects.filter(
        noticed_at__gt=now - ONCE_FOR, noticed_at__lte=now, accepted_at=None
    )
    sums = lately.order_by().values_list("query", "kind")
    found: dict[int, list[tuple[IncidentKind, str]]] = {}
    for query, kind, records, offsets in sums.annotate(Sum("records"), Sum("offsets")):
        if kind == LossKind.LATE:
            text = f"{records or 0:,} records came behind the watermark today and were dropped."
            found.setdefault(query, []).append((IncidentKind.LATE_RECORDS, text))
            continue
        count = f"{offsets or 0:,} offsets" if records is None else f"{records:,} records"
        text = f"{count} were never read; the loss ledger has them."
        found.setdefault(query, []).append((IncidentKind.RECORDS_LOST, text))
    return found


def _gaps(now: datetime) -> dict[int, int]:
    """Return how many batches' events went beyond repair lately, by query."""
    lately = Gap.objects.filter(beyond_repair=True, kind="batch", closed_at__gt=now - ONCE_FOR)
    counted = lately.order_by().values_list("query").annotate(Sum("missing"), Sum("repaired"))
    return {query: missing - repaired for query, missing, repaired in counted if query}


def _driver_deaths() -> Iterator[Trouble]:
    """Yield the applications whose drivers die again and again: one trouble each."""
    wanting = Query.objects.filter(archived_at=None, desired=Desired.RUNNING).order_by()
    scripts = {row.application_id: row for row in Script.objects.filter(desired=Desired.RUNNING)}
    applications = Application.objects.filter(
        Q(failures__gte=DEATHS) | ~Q(hold=Hold.NONE),
        Q(pk__in=wanting.values("application")) | Q(pk__in=scripts),
        archived_at=None,
    )
    living = list(applications)
    if not living:
        return
    wanted: dict[int, list[Subject]] = {}
    queries = Query.objects.filter(
        application__in=living, archived_at=None, desired=Desired.RUNNING
    ).order_by("name")
    for pk, name, home in queries.values_list("pk", "name", "application"):
        wanted.setdefault(home, []).append(Subject(pk, name))
    groups = FailureGroup.objects.filter(
        application__in=living, query=None, status=GroupStatus.OPEN
    ).order_by("last_seen")
    newest = {group.application_id: group for group in groups}
    for application in living:
        script = scripts.get(application.pk)
        if application.pk not in wanted and script is None:  # stopped in between
            continue
        kind, title = IncidentKind.DRIVER_DEATHS, "the driver dies again and again"
        if script is not None:
            title = "the script fails again and again"
            if script.question:
                kind, title = IncidentKind.QUERY_IDENTITY, "an author says which query is which"
        group = newest.get(application.pk)
        yield Trouble(
            kind=kind,
            fingerprint=f"{kind}:application:{application.pk}",
            title=f"{application.name}: {title}",
            detail=group.title if group else "",
            queries=tuple(wanted.get(application.pk, ())),
            application=_subject(application),
            host=application.host,
            labels=application.labels,
            group=group.pk if group else None,
        )


def _hosts() -> Iterator[Trouble]:
    heard, silent = silent_hosts()
    if not heard or not silent:
        return  # with no host heard there is no worker, which is said by another part
    names = [one.name for one in silent]
    drivers = Driver.objects.filter(host__in=names, kind=DriverKind.SERVICE, ended_at=None)
    placed = Query.objects.filter(
        Q(application__host__in=names) | Q(application__drivers__in=drivers),
        archived_at=None,
        desired=Desired.RUNNING,
    ).distinct()
    queries: dict[str, list[Subject]] = {}
    for pk, name, host in placed.order_by("name").values_list("pk", "name", "application__host"):
        queries.setdefault(host, []).append(Subject(pk, name))
    for one in silent:
        since = f" since {one.seen_at:%H:%M:%S} UTC" if one.seen_at else ""
        yield Trouble(
            kind=IncidentKind.HOST_SILENT,
            fingerprint=f"{IncidentKind.HOST_SILENT}:{one.name}",
            title=f"Host {one.name} is silent",
            detail=f"It has given no sign of life{since}. {one.drivers:,} drivers and "
            f"{one.queries:,} queries that should run are there; they may still run.",
            queries=tuple(queries.get(one.name, ())),
            host=one.name,
        )


def _of_headgate(problems: Iterable[Part]) -> Iterator[Trouble]:
    for part in problems:
        if kind := _PARTS.get(part.name):
            yield Trouble(
                kind=kind,
                fingerprint=kind,
                title=f"Headgate: {kind.label.lower()}",
                detail=part.sentence,
            )


def _channels(now: datetime) -> Iterator[Trouble]:
    dead = Channel.objects.filter(enabled=True, failing_since__lte=now - DEAD_AFTER)
    for channel in dead:
        yield Trouble(
            kind=IncidentKind.CHANNEL_DEAD,
            fingerprint=f"{IncidentKind.CHANNEL_DEAD}:{channel.pk}",
            title=f"Channel {channel.name} delivers nothing",
            detail=channel.last_error,
        )


def _subject(application: Application) -> Subject:
    return Subject(application.pk, application.name)
