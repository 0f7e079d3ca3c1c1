"""Read the cores occupied by queries for partitions, and how queries used them over a range."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max, Q

from listeners.models import TaskTime
from queries.domain.definitions import parsing
from queries.domain.definitions.spec import HOLDING_TRIGGERS, ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.errors import Invalid
from queries.domain.triggers.cores import (
    Ground,
    Starved,
    TaskShare,
    ground_of,
    permanent_cores,
    starved,
)
from queries.models.applications import Application
from queries.models.checkpoints import SourceLag
from queries.models.definitions import Query
from queries.selectors import visible
from queries.selectors.kafka.sources import kafka_sources
from queries.selectors.rows import newest_revisions
from queries.selectors.supervision.applications import ApplicationDetail

Spec = SqlQuery | PythonQuery


def partition_counts(query_id: int, spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the partitions of a query's Kafka sources as of the last pass over the brokers.

    The keys are the sources' names; sources that were never looked up are omitted.
    """
    topics = partitions_by_topic([query_id]).get(query_id, {})
    counts_by_source = {}
    for source in kafka_sources(spec):
        counts = [count for topic, count in topics.items() if source.wanted.matches(topic)]
        if counts:
            counts_by_source[source.name] = sum(counts)
    return counts_by_source


def partitions_by_topic(query_ids: Iterable[int]) -> dict[int, dict[str, int]]:
    """Return {query: {topic: partitions}} as of the last pass over the brokers."""
    by_query: dict[int, dict[str, int]] = defaultdict(Counter)
    rows = SourceLag.objects.filter(query__in=list(query_ids), partition__gte=0)
    for query, topic in rows.filter(latest__isnull=False).values_list("query_id", "source"):
        by_query[query][topic] += 1
    return by_query


def cores_beside(application: Application, *, but: int | None) -> dict[str, int]:
    """Return the cores that an application's existing queries occupy permanently, by query name.

    `but` is the query to exclude.
    """
    living = Query.objects.filter(application=application, archived_at=None).exclude(pk=but or 0)
    queries = dict(living.values_list("pk", "name"))
    spec, cores_by_query = None, {}
    for pk, revision in newest_revisions(list(queries)).items():
        if revision.spec.get("trigger", {}).get("kind") not in HOLDING_TRIGGERS:
            continue
        query_spec = parsed_or_none(revision.spec)
        if query_spec is not None:
            spec = spec or newest_application_spec(application)
            looked_up = partition_counts(pk, revision.spec)
            ground = ground_of(query_spec, spec, host_cores=None, partitions=looked_up, beside={})
            cores_by_query[queries[pk]] = permanent_cores(query_spec, ground)
    return {name: cores for name, cores in cores_by_query.items() if cores}


def ground_for(query: Query, spec: Spec, raw: Mapping[str, Any]) -> Ground:
    """Return the facts that an existing query's trigger depends on, as far as they are in rows."""
    return ground_of(
        spec,
        newest_application_spec(query.application),
        host_cores=os.cpu_count(),
        partitions=partition_counts(query.pk, raw),
        beside=cores_beside(query.application, but=query.pk),
    )


def newest_application_spec(application: Application) -> ApplicationSpec:
    """Return the spec of an application's newest revision."""
    return ApplicationSpec.model_validate(application.revisions.order_by("-number")[0].spec)


def parsed_or_none(raw: Mapping[str, Any]) -> Spec | None:
    """Return a stored definition; None if the current form can no longer read it."""
    try:
        return parsing.parse_query(raw)
    except Invalid:
        return None


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
    """Return the task shares of an application's existing queries in the range, largest first.

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

    `span` describes the range ("the last hour").
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
