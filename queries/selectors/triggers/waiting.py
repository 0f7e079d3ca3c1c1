"""Compute how queries used their application's cores over a range, from driver heartbeats."""

from collections import defaultdict
from datetime import datetime, timedelta

from django.db.models import Max, Q

from listeners.models import TaskTime
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.triggers.waiting import Starved, TaskShare, starved
from queries.models.applications import Application
from queries.selectors import visible
from queries.selectors.newest import newest_revisions
from queries.selectors.supervision.applications import ApplicationDetail

#: The length of a range on pages, and its name in a sentence.
RANGES = {
    "15m": (timedelta(minutes=15), "the last 15 minutes"),
    "1h": (timedelta(hours=1), "the last hour"),
    "6h": (timedelta(hours=6), "the last 6 hours"),
    "24h": (timedelta(days=1), "the last day"),
    "7d": (timedelta(days=7), "the last 7 days"),
}
DEFAULT_RANGE = "1h"

_MOST_RUNS = 1_000  # newest; a query in a crash loop has many short ones


def waits(
    detail: ApplicationDetail, *, now: datetime, span: str = DEFAULT_RANGE
) -> tuple[list[TaskShare], list[Starved]]:
    """Return an application's task shares over a range that ends now, and the starved queries."""
    length, words = RANGES[span]
    shares = task_shares(detail.application, since=now - length, until=now)
    return shares, starved_queries(detail, shares, span=words)


def task_shares(application: Application, *, since: datetime, until: datetime) -> list[TaskShare]:
    """Return task shares of an application's existing queries in the range, largest first.

    The range is accurate to `listeners.latest.TASK_TIME_S` seconds.
    """
    living = visible.queries().filter(application=application, archived_at=None)
    names = dict(living.values_list("pk", "name"))
    runs = list(
        visible.runs()
        .filter(query__in=names, created_at__lt=until)
        .filter(Q(ended_at=None) | Q(ended_at__gte=since))
        .order_by("-pk")
        .values_list("pk", "query", "created_at", "ended_at")[:_MOST_RUNS]
    )
    grown = _grown([pk for pk, *_ in runs], since, until)
    query_of = {pk: names[query] for pk, query, *_ in runs}
    task_ms: defaultdict[str, int] = defaultdict(int)
    waited_ms: defaultdict[str, int] = defaultdict(int)
    waits: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    covered: defaultdict[str, float] = defaultdict(float)
    for pk, query, began, ended in runs:
        name = names[query]
        covered[name] += (min(ended or until, until) - max(began, since)).total_seconds()
        row = grown.get(pk)
        if row is None:
            continue
        task_ms[name] += row.task_ms
        waited_ms[name] += row.waited_ms
        for other, spent in row.waited_for.items():
            if (by := query_of.get(int(other))) and by != name:
                waits[name][by] += spent / 1000
    pools = {pk: row.spec.get("pool", "") for pk, row in newest_revisions(list(names)).items()}
    whole = sum(task_ms.values())
    shares = [
        TaskShare(
            query=name,
            pool=pools.get(pk, ""),
            since=max(0.0, covered[name]),
            task_s=task_ms[name] / 1000,
            share=task_ms[name] / whole if whole else 0.0,
            waited_s=waited_ms[name] / 1000,
            waited_for=dict(sorted(waits[name].items(), key=lambda pair: -pair[1])),
        )
        for pk, name in names.items()
        if name in covered
    ]
    return sorted(shares, key=lambda share: (-share.task_s, share.query))


def starved_queries(
    detail: ApplicationDetail, shares: list[TaskShare], *, span: str
) -> list[Starved]:
    """Return the application's queries that waited for others, and the remedy.

    `span` describes the range in words ("the last hour").
    """
    spec = ApplicationSpec.model_validate(detail.newest.spec if detail.newest else {})
    return starved(
        shares,
        scheduler_mode=spec.scheduler_mode,
        min_shares={holding.pool.name: holding.pool.min_share for holding in detail.pools},
        span=span,
        application=detail.application.name,
    )


def _grown(runs: list[int], since: datetime, until: datetime) -> dict[int, TaskTime]:
    """Return the increase of each run's sums within a range."""
    rows = TaskTime.objects.filter(run__in=runs)
    before = rows.filter(at__lte=since).values("run").annotate(start=Max("start"))
    last = rows.filter(at__lte=until).values("run").annotate(start=Max("start"))
    wanted = {(total["run"], total["start"]) for totals in (before, last) for total in totals}
    at = {(row.run, row.start): row for row in rows.filter(start__in={s for _, s in wanted})}
    base = {total["run"]: at[total["run"], total["start"]] for total in before}
    return {
        total["run"]: _less(at[total["run"], total["start"]], base.get(total["run"]))
        for total in last
    }


def _less(row: TaskTime, base: TaskTime | None) -> TaskTime:
    if base is None:
        return row
    return TaskTime(
        run=row.run,
        task_ms=row.task_ms - base.task_ms,
        waited_ms=row.waited_ms - base.waited_ms,
        waited_for={
            run: ms - base.waited_for.get(run, 0)
            for run, ms in row.waited_for.items()
            if ms > base.waited_for.get(run, 0)
        },
    )
