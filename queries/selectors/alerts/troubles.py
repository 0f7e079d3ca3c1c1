"""Read current problems from the rows that pages show, in a fixed number of queries.

Only queries that should run are examined, with two exceptions: stopped queries whose unread records
are about to be deleted, and SQL that was saved unchecked and that Spark rejects. This module does
not make its own assessments: its sources are phases, verdicts, risks, crash loops, the loss ledger,
gaps, hosts, and system health.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Self

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, Subquery, Sum

from listeners.models import Gap
from queries.domain.alerts.explanations import OF_FAILURE
from queries.domain.alerts.forms import IncidentKind
from queries.domain.alerts.incidents import AlertCondition, AlertSubject, grouped, of_disk, of_query
from queries.domain.deploys.request import IN_DEPLOYS_HANDS, ChangeKind
from queries.domain.failures.categories import Category
from queries.domain.failures.crashes import CrashLoop
from queries.domain.kafka.options import SERVERS
from queries.domain.kafka.topic_ids import ids_of, replaced_in
from queries.domain.readings import counted
from queries.domain.reasons import why
from queries.domain.states import (
    BLOCKED_PHASES,
    HANGING_REASONS,
    Desired,
    DriverKind,
    GroupStatus,
    LossKind,
    Phase,
    RestartBlock,
    RunOutcome,
    Verdict,
)
from queries.domain.supervision.outcomes import DEATHS
from queries.domain.system import OF_DATA, Part
from queries.models.alerts import AlertRule, Channel
from queries.models.applications import Application, Script
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.deploys import DeployChange
from queries.models.drivers import Driver, Run
from queries.models.history import Failure, FailureGroup
from queries.selectors.alerts.rules import stopped_within
from queries.selectors.alerts.thresholds import crossed_thresholds
from queries.selectors.code import moved_checkpoints
from queries.selectors.failures.full_disks import disk_text, full_disk_failures
from queries.selectors.failures.occurrences import crash_loops
from queries.selectors.hosts import home_disk, silent_hosts
from queries.selectors.kafka.lag import summed
from queries.selectors.triggers.advice import why_slow

#: A broker that misses one pass is not down; its first miss does not open an incident.
UNREACHABLE_FOR = timedelta(seconds=10)
#: How long a one-off event (lost records, dropped events) stays a problem.
ONCE_FOR = timedelta(minutes=10)
#: A channel that has failed for this long is considered dead.
DEAD_AFTER = timedelta(minutes=10)

_VERDICTS = {
    Verdict.STALLED: IncidentKind.STALLED,
    Verdict.QUERY_MISSING: IncidentKind.QUERY_MISSING,
    Verdict.NO_TELEMETRY: IncidentKind.NO_TELEMETRY,
    Verdict.LAGGING: IncidentKind.LAGGING,
}
#: Phases of a start, whose end shows what became of deleted records.
_COMING = frozenset({Phase.PENDING, Phase.STARTING})
#: Verdicts that a slow batch may explain.
_SLOW = (Verdict.STALLED, Verdict.LAGGING)
#: The incident kind for a driver, or a script, that supervision does not restart.
_BLOCKED_KINDS: dict[str, IncidentKind] = {
    RestartBlock.FAILED: IncidentKind.FAILED,
    RestartBlock.ON_HOLD: IncidentKind.ON_HOLD,
}
#: Parts of the system's health, and the incident kind of each. Only the watcher reports the worker
#: and its ticks: without them, nothing runs here, and after a pause, they would be assessed by
#: their own old times.
_PARTS = {
    "disk": IncidentKind.DISK,
    "ingester": IncidentKind.INGESTER_DOWN,
    "data": IncidentKind.DATA_OLD,
}


@dataclass(frozen=True, slots=True)
class _Rows:
    """The queries concerned, and the objects that their incidents link to."""

    queries: dict[int, Query]
    failures: dict[int, Failure]  # query -> its newest one, or that of its driver
    runs: dict[int, int]  # query -> its open run
    replaced: set[int]  # queries with a topic that was deleted and recreated
    slow: dict[int, str] = field(default_factory=dict)  # query -> why its slowest batch was slow
    full: set[int] = field(default_factory=set)  # failures because of a full disk

    def trouble(self, kind: IncidentKind, query: Query, detail: str = "") -> AlertCondition:
        failure = self.failures.get(query.pk) if kind in OF_FAILURE else None
        group = failure.group if failure else None
        loses = kind is IncidentKind.FAILED and failure is not None and _is_loss(failure)
        return AlertCondition(
            kind=kind,
            fingerprint=of_query(kind, query.pk, loses=loses),
            title=f"{query.name}: {kind.label.lower()}",
            detail=detail or (group.title if group else ""),
            queries=(AlertSubject(query.pk, query.name),),
            application=_subject(query.application),
            host=query.application.host,
            labels={**query.application.labels, **query.labels},
            group=group.pk if group else None,
            run=self.runs.get(query.pk),
        )


def troubles(problems: Iterable[Part], *, now: datetime) -> list[AlertCondition]:
    """Return current problems without duplicates (`queries.domain.alerts.incidents.grouped`).

    `problems` are the parts of the system that have a problem.
    """
    loops = crash_loops(now=now)
    losses, gaps = _losses(now), _gaps(now)
    moved = {one.query: one.text for one in moved_checkpoints(since=now - ONCE_FOR)}
    rows = _rows({*loops, *losses, *gaps, *moved}, loops, now)
    deploys = _Deploys.read()
    found: list[AlertCondition] = []
    for pk, query in rows.queries.items():
        found += _of_query(rows, query, now)
        if loop := loops.get(pk):
            found.append(_crash_loop(rows, query, loop))
        found += (rows.trouble(kind, query, text) for kind, text in losses.get(pk, ()))
        if count := gaps.get(pk):
            text = (
                f"The reports of {counted(count, 'batch,batches')} are permanently lost; the "
                f"rows {'it' if count == 1 else 'they'} wrote are not."
            )
            found.append(rows.trouble(IncidentKind.EVENTS_DROPPED, query, text))
        if text := moved.get(pk, ""):
            found.append(rows.trouble(IncidentKind.CHECKPOINT_MOVED, query, text))
    found += _thresholds(rows, now)
    found += _refused_sql()
    found += _driver_deaths()
    found += _hosts()
    found += _of_headgate(problems)
    found += _channels(now)
    found += _rules()
    return grouped(one for one in found if one.kind not in _DEPLOYED or not deploys.has(one))


def _is_loss(failure: Failure) -> bool:
    return failure.category == Category.SOURCE_LOST


def _rows(more: Iterable[int], loops: Mapping[int, CrashLoop], now: datetime) -> _Rows:
    troubled = (
        Q(phase__in=sorted(BLOCKED_PHASES))
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
    # Two reads, each with its own index: of ten thousand queries, few should run and fewer hang.
    # They are sorted here, because the database would otherwise read all of them by name.
    stopped = Q(risk_at__lte=now + stopped_within(), desired=Desired.STOPPED) & ~Q(risk="")
    some = (rows.filter(troubled, desired=Desired.RUNNING), rows.filter(hangs))
    found = [query for each in (*some, rows.filter(stopped)) for query in each.order_by()]
    queries = {query.pk: query for query in sorted(found, key=lambda query: query.name)}
    failures = _failures(queries, loops)
    runs = Run.objects.filter(query__in=queries, outcome=RunOutcome.OPEN).order_by()
    return _Rows(
        queries=queries,
        failures=failures,
        full=full_disk_failures(failures.values()),
        runs=dict(runs.values_list("query", "pk")),
        replaced=_replaced([pk for pk, query in queries.items() if query.risk]),
        slow=why_slow(
            {
                pk: one.verdict_since
                for pk, one in queries.items()
                if one.verdict in _SLOW and one.verdict_since is not None
            },
            now=now,
        ),
    )


def _failures(queries: Mapping[int, Query], loops: Mapping[int, CrashLoop]) -> dict[int, Failure]:
    """Return the newest failure in an open group of each query that fails, and of its driver.

    One that is older than a query's crash loop does not explain it.
    """
    failing = {pk: one for pk, one in queries.items() if pk in loops or one.phase in BLOCKED_PHASES}
    if not failing:
        return {}
    homes = {one.application_id for one in failing.values()}
    of_driver = Q(query=None, application__in=homes)
    groups = FailureGroup.objects.filter(Q(query__in=failing) | of_driver, status=GroupStatus.OPEN)
    last = Failure.objects.filter(group=OuterRef("pk")).order_by("-at", "-pk").values("pk")[:1]
    newest = list(groups.order_by().annotate(last=Subquery(last)).values_list("last", flat=True))
    rows = Failure.objects.filter(pk__in=newest).select_related("group").order_by("at", "pk")
    own: dict[int, Failure] = {}
    of_drivers: dict[int, Failure] = {}
    for failure in rows.defer("message", "log_tail", "conf", "offsets", "last_progress"):
        if failure.group.query_id is not None:
            own[failure.group.query_id] = failure
        else:
            of_drivers[failure.group.application_id] = failure
    found = {}
    for pk, query in failing.items():
        known = [one for one in (own.get(pk), of_drivers.get(query.application_id)) if one]
        if pk in loops:
            known = [one for one in known if one.at >= loops[pk].first_at]
        elif pk in own:  # it is held because of its own failure
            known = [own[pk]]
        if known:
            found[pk] = max(known, key=lambda one: (one.at, one.pk))
    return found


def _crash_loop(rows: _Rows, query: Query, loop: CrashLoop) -> AlertCondition:
    """Return a query's crash loop with its cause, or the full disk that explains it."""
    since = f"{loop.count:,} failures since {loop.first_at:%H:%M} UTC; retried with backoff."
    failure = rows.failures.get(query.pk)
    if failure is None:
        return rows.trouble(IncidentKind.CRASH_LOOP, query, since)
    if failure.pk not in rows.full:
        cause = failure.group.title.removesuffix(".")
        return rows.trouble(IncidentKind.CRASH_LOOP, query, f"{cause}. {since}")
    mount, text = disk_text(failure, query)
    host = query.application.host or settings.HEADGATE_HOST
    home = home_disk() if mount else None
    own = home is not None and home.mount == mount  # the part "disk" reports it too
    return replace(
        rows.trouble(IncidentKind.DISK, query, f"{text} {query.name}: {since}"),
        fingerprint=of_disk(host, "" if own else mount or query.name),
        title=f"Disk full: {mount} on {host}" if mount else f"{query.name}: disk full",
    )


#: Kinds that a deploy deals with itself: it judges the query or driver, and rolls it back.
_DEPLOYED = frozenset(
    {
        *(IncidentKind.FAILED, IncidentKind.ON_HOLD, IncidentKind.CRASH_LOOP),
        *(IncidentKind.STALLED, IncidentKind.DRIVER_DEATHS, IncidentKind.PREFLIGHT_FAILING),
    }
)


@dataclass(frozen=True, slots=True)
class _Deploys:
    """The queries and applications that open deploys are judging or rolling back."""

    queries: frozenset[int]
    applications: frozenset[int]

    @classmethod
    def read(cls) -> Self:
        rows = DeployChange.objects.filter(over=False, state__in=sorted(IN_DEPLOYS_HANDS))
        found = list(rows.order_by().values_list("query", "application", "with_driver", "kind"))
        return cls(
            frozenset(query for query, *_ in found if query is not None),
            frozenset(
                application
                for _, application, with_driver, kind in found
                if application is not None and (with_driver or kind == ChangeKind.APPLICATION)
            ),
        )

    def has(self, trouble: AlertCondition) -> bool:
        """Return whether a problem concerns only objects that a deploy handles."""
        home = trouble.application.id if trouble.application else None
        if home in self.applications:
            return True
        return bool(trouble.queries) and all(one.id in self.queries for one in trouble.queries)


def _replaced(queries: list[int]) -> set[int]:
    by_offsets = SourceLag.objects.filter(query__in=queries, replaced=True)
    held = Checkpoint.objects.filter(query__in=queries, retired_at=None)
    by_id = {pk for pk, ids in held.values_list("query", "topic_ids") if replaced_in(ids_of(ids))}
    return by_id.union(by_offsets.values_list("query", flat=True))


def _of_query(rows: _Rows, query: Query, now: datetime) -> Iterator[AlertCondition]:
    """Yield the problems in the query's own row."""
    reason = why(query.phase_reason, query.phase_detail).text
    if query.phase == Phase.STOPPING and query.phase_reason in HANGING_REASONS:
        yield rows.trouble(IncidentKind.STUCK_STOP, query, reason)
    if query.desired != Desired.RUNNING:
        if query.risk and query.risk_at and query.risk_at <= now + stopped_within():
            yield _risk(rows, query, now, IncidentKind.AT_RISK_STOPPED)
        return
    if query.restart_block == RestartBlock.FAILED or query.phase == Phase.FAILED:
        yield rows.trouble(IncidentKind.FAILED, query)
    elif query.phase == Phase.ON_HOLD:
        yield rows.trouble(IncidentKind.ON_HOLD, query)
    if (kind := _VERDICTS.get(Verdict(query.verdict) if query.verdict else Verdict.IDLE)) and (
        kind is not IncidentKind.LAGGING or _lasts(query.verdict_since, now)
    ):
        yield rows.trouble(kind, query, _verdict(rows, query))
    deleted = query.risk_at is not None and query.risk_at <= now
    # While it starts: what is gone fails it, or is recorded as lost, within its first batch.
    if query.risk and not (deleted and query.phase in _COMING):
        yield _risk(rows, query, now, IncidentKind.AT_RISK)
    yield from _ahead(rows, query, now)
    away = query.source_unreachable_since
    if away is not None and now - away >= UNREACHABLE_FOR:
        yield _unreachable(rows, query)


def _risk(rows: _Rows, query: Query, now: datetime, kind: IncidentKind) -> AlertCondition:
    """Return a query's possible loss, titled by its cause."""
    title = "unread records are about to be deleted"
    if kind is IncidentKind.AT_RISK_STOPPED:
        title = kind.label.lower()
    if query.pk in rows.replaced:
        title = "a topic was deleted and recreated"
    elif query.risk_at is not None and query.risk_at <= now:
        title = "unread records were deleted"
    trouble = rows.trouble(kind, query, query.risk)
    return replace(trouble, title=f"{query.name}: {title}")


def _ahead(rows: _Rows, query: Query, now: datetime) -> Iterator[AlertCondition]:
    """Yield the forecasts of `queries.services.alerts.figures`."""
    full = query.state_full_at
    if full is not None and full - now <= timedelta(hours=settings.ALERT_STATE_FULL_HOURS):
        text = (
            "At the current growth rate, its state will fill the driver's memory at "
            f"{full:%H:%M} UTC."
        )
        yield rows.trouble(IncidentKind.STATE_LIMIT, query, text)
    records = query.replay_records
    if records is not None and records > settings.ALERT_REPLAY_RECORDS:
        text = f"After a crash now, {records:,} records would be read and written again."
        yield rows.trouble(IncidentKind.REPLAY, query, text)
    if query.preflight_fails:
        text = "Its newest revision fails the preflight that its application requires: a restart "
        yield rows.trouble(IncidentKind.PREFLIGHT_FAILING, query, f"{text}would be rejected.")


def _thresholds(rows: _Rows, now: datetime) -> Iterator[AlertCondition]:
    """Yield the crossed thresholds of queries and rules."""
    for query, status in crossed_thresholds(now=now):
        held, text = status.held, status.judged.text
        because = f" Set by the rule {held.rule}." if held.rule else ""
        trouble = rows.trouble(IncidentKind.THRESHOLD, query, text + because)
        if status.judged.value is not None:  # else the figure is unknown: the detail says so
            title = f"{query.name}: {text.removesuffix('.')}"
            trouble = replace(trouble, title=title[:300])
        yield replace(trouble, fingerprint=held.fingerprint)


def _refused_sql() -> Iterator[AlertCondition]:
    """Yield SQL that was saved while Spark's parser did not respond, and was rejected later."""
    rows = QueryRevision.objects.exclude(refusal="").filter(query__archived_at=None)
    newer = QueryRevision.objects.filter(query=OuterRef("query"), number__gt=OuterRef("number"))
    for row in rows.exclude(Exists(newer)).select_related("query__application"):
        text = f"Revision {row.number}, saved by {row.author} unchecked, {row.refusal}"
        yield _Rows({}, {}, {}, set()).trouble(IncidentKind.SQL_REFUSED, row.query, text)


def _verdict(rows: _Rows, query: Query) -> str:
    since = query.verdict_since
    word = query.verdict.replace("_", " ").capitalize()
    text = f"{word} since {since:%H:%M:%S} UTC." if since else ""
    return f"{text} {rows.slow.get(query.pk, '')}".strip()


def _lasts(since: datetime | None, now: datetime) -> bool:
    return since is not None and now - since >= timedelta(minutes=settings.ALERT_LAGGING_MINUTES)


def _unreachable(rows: _Rows, query: Query) -> AlertCondition:
    """Return the problem that a source is unreachable, shared by all queries that read from it."""
    spec = query.target_revision.spec if query.target_revision else {}
    options = [source.get("options", {}) for source in spec.get("sources", ())]
    servers = sorted({str(one[SERVERS]) for one in options if SERVERS in one})
    trouble = rows.trouble(IncidentKind.SOURCE_UNREACHABLE, query)
    name = ", ".join(servers)
    return AlertCondition(
        kind=trouble.kind,
        fingerprint=f"{trouble.kind}:{name}" if name else trouble.fingerprint,
        title=f"Source {name} unreachable" if name else f"{query.name}: source unreachable",
        detail=(
            "Neither Headgate nor the queries that read from it get a response; they continue "
            "automatically once it responds."
        ),
        queries=trouble.queries,
        application=trouble.application,
        host=trouble.host,
        labels=trouble.labels,
    )


def _losses(now: datetime) -> dict[int, list[tuple[IncidentKind, str]]]:
    """Return recent loss ledger entries that have not been accepted, by query."""
    lately = Q(noticed_at__gt=now - ONCE_FOR, noticed_at__lte=now, accepted_at=None, corrects=None)
    back = Q(corrects__noticed_at__gt=now - ONCE_FOR, corrects__accepted_at=None)
    found: dict[int, list[tuple[IncidentKind, str]]] = {}
    for query, totals in summed(Loss.objects.filter(lately | back)).items():
        for total in totals:
            if total.kind == LossKind.LATE:
                came, were = counted(total.records or 0, "record"), _were(total.records)
                text = f"{came} arrived later than the watermark today and {were} dropped."
                found.setdefault(query, []).append((IncidentKind.LATE_RECORDS, text))
                continue
            noun, lost = "record", total.records
            if lost is None:
                noun, lost = "offset", total.offsets or 0
            listed = "it is" if lost == 1 else "they are"
            text = f"{counted(lost, noun)} {_were(lost)} never read; {listed} listed in the "
            text += "loss ledger."
            if total.corrected:
                entries = counted(total.corrected, "entry was,entries were")
                text += f" Another {entries} corrected: not lost."
            found.setdefault(query, []).append((IncidentKind.RECORDS_LOST, text))
    return found


def _were(count: int | None) -> str:
    return "was" if count == 1 else "were"


def _gaps(now: datetime) -> dict[int, int]:
    """Return how many batches' events were recently lost permanently, by query."""
    lately = Gap.objects.filter(beyond_repair=True, kind="batch", closed_at__gt=now - ONCE_FOR)
    counted = lately.order_by().values_list("query").annotate(Sum("missing"), Sum("repaired"))
    return {query: missing - repaired for query, missing, repaired in counted if query}


def _driver_deaths() -> Iterator[AlertCondition]:
    """Yield one problem for each application whose driver or script keeps failing or is blocked."""
    wanting = Query.objects.filter(archived_at=None, desired=Desired.RUNNING).order_by()
    scripts = {row.application_id: row for row in Script.objects.filter(desired=Desired.RUNNING)}
    applications = Application.objects.filter(
        Q(failures__gte=DEATHS) | ~Q(restart_block=RestartBlock.NONE),
        Q(pk__in=wanting.values("application")) | Q(pk__in=scripts),
        archived_at=None,
    )
    living = list(applications)
    if not living:
        return
    wanted: dict[int, list[AlertSubject]] = {}
    queries = Query.objects.filter(
        application__in=living, archived_at=None, desired=Desired.RUNNING
    ).order_by("name")
    for pk, name, home in queries.values_list("pk", "name", "application"):
        wanted.setdefault(home, []).append(AlertSubject(pk, name))
    groups = FailureGroup.objects.filter(
        application__in=living, query=None, status=GroupStatus.OPEN
    ).order_by("last_seen")
    newest = {group.application_id: group for group in groups}
    for application in living:
        script = scripts.get(application.pk)
        if application.pk not in wanted and script is None:  # stopped in the meantime
            continue
        part = "driver" if script is None else "script"
        kind = _BLOCKED_KINDS.get(application.restart_block, IncidentKind.DRIVER_DEATHS)
        title = f"the {part} has failed and is not restarted"
        if kind is IncidentKind.ON_HOLD:
            title = f"the {part} is on hold"
        elif kind is IncidentKind.DRIVER_DEATHS:
            title = f"the {part} fails repeatedly"
        if script is not None and script.question:
            kind, title = (
                IncidentKind.QUERY_IDENTITY,
                ("the script is waiting for an author's answer"),
            )
        group = newest.get(application.pk)
        yield AlertCondition(
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


def _hosts() -> Iterator[AlertCondition]:
    heard, silent = silent_hosts()
    if not heard or not silent:
        return  # without any live host there is no worker, which another part reports
    names = [one.name for one in silent]
    drivers = Driver.objects.filter(host__in=names, kind=DriverKind.SERVICE, ended_at=None)
    placed = Query.objects.filter(
        Q(application__host__in=names) | Q(application__drivers__in=drivers),
        archived_at=None,
        desired=Desired.RUNNING,
    ).distinct()
    queries: dict[str, list[AlertSubject]] = {}
    for pk, name, host in placed.order_by("name").values_list("pk", "name", "application__host"):
        queries.setdefault(host, []).append(AlertSubject(pk, name))
    for one in silent:
        since = f" since {one.seen_at:%H:%M:%S} UTC" if one.seen_at else ""
        yield AlertCondition(
            kind=IncidentKind.HOST_SILENT,
            fingerprint=f"{IncidentKind.HOST_SILENT}:{one.name}",
            title=f"Host {one.name} is silent",
            detail=(
                f"It has sent no heartbeat{since}. {one.drivers:,} drivers and {one.queries:,} "
                "queries that should run are on it; they may still be running."
            ),
            queries=tuple(queries.get(one.name, ())),
            host=one.name,
        )


def _of_headgate(problems: Iterable[Part]) -> Iterator[AlertCondition]:
    for part in problems:
        if part.name.startswith(OF_DATA):
            mount = part.name.removeprefix(OF_DATA)
            yield AlertCondition(
                kind=IncidentKind.DISK,
                fingerprint=of_disk(settings.HEADGATE_HOST, mount),
                title=f"Disk full: {mount} on {settings.HEADGATE_HOST}",
                detail=part.sentence,
                host=settings.HEADGATE_HOST,
            )
        elif kind := _PARTS.get(part.name):
            yield AlertCondition(
                kind=kind,
                fingerprint=kind,
                title=f"Headgate: {kind.label.lower()}",
                detail=part.sentence,
            )


def _channels(now: datetime) -> Iterator[AlertCondition]:
    dead = Channel.objects.filter(enabled=True, failing_since__lte=now - DEAD_AFTER)
    for channel in dead:
        yield AlertCondition(
            kind=IncidentKind.CHANNEL_DEAD,
            fingerprint=f"{IncidentKind.CHANNEL_DEAD}:{channel.pk}",
            title=f"Channel {channel.name} delivers nothing",
            detail=channel.last_error,
        )


def _rules() -> Iterator[AlertCondition]:
    """Yield the enabled rules whose channels, or those to escalate to, are all disabled or gone."""
    rules = AlertRule.objects.filter(enabled=True)
    escalating = rules.exclude(escalate_after_minutes=None)
    for step, mute in (
        ("", rules.exclude(channels__enabled=True)),
        (" to escalate to", escalating.exclude(escalate_to__enabled=True)),
    ):
        for rule in mute:
            yield AlertCondition(
                kind=IncidentKind.NO_CHANNEL,
                fingerprint=f"{IncidentKind.NO_CHANNEL}:{rule.pk}{step}",
                title=f"Rule {rule.name} has no enabled channel{step}",
            )


def _subject(application: Application) -> AlertSubject:
    return AlertSubject(application.pk, application.name)
