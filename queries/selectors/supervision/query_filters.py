"""Select and group queries with database conditions, for lists, bulk actions and REST calls.

Lists are filtered, sorted and counted by these conditions, so that only displayed rows are read.
Verdicts are those last stored by `queries.services.supervision.records`, at most a few seconds
ago.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import (
    Case,
    Count,
    F,
    OuterRef,
    PositiveSmallIntegerField,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from listeners import selectors as heard
from queries.domain.definitions.labels import Selection
from queries.domain.states import JUDGED_PHASES, QUIET_VERDICTS, STOPPED_PHASES, Phase, RunOutcome
from queries.models.definitions import Checkpoint, Query, QueryRevision, Rank
from queries.selectors import visible
from queries.selectors.failures.occurrences import crash_loops
from queries.selectors.rows import label, labelled, newest_runs

#: How long foreign batches are shown with the query; its checkpoint keeps them.
FOREIGN_SHOWN_FOR = timedelta(hours=24)

#: The groups by which a query list can be filtered, for rows with their rank.
GROUPS = {
    "all": Q(),
    "attention": Q(rank__lte=Rank.TROUBLED),
    "risk": Q(rank=Rank.AT_RISK),
    "running": Q(phase=Phase.RUNNING),
    "changing": Q(changing=True),
    "stopped": Q(phase__in=sorted(STOPPED_PHASES)),
}


#: List order: queries at risk, queries in trouble, the others.
RANK = F("rank")


def ranked(rows: QuerySet[Query], *, now: datetime) -> QuerySet[Query]:
    """Add its `rank` to each row: from its own columns, or because of a rare condition.

    Crash loops, missing batches and foreign batches are looked up first. If there are none, the
    rank is just the column, and lists are read in the order of its index.
    """
    rare = {*crash_loops(now=now), *_with_holes(), *_foreign(now)}
    if not rare:
        return rows.annotate(**{"rank": F("own_rank")})
    troubled = When(own_rank=Rank.CALM, pk__in=sorted(rare), then=Value(Rank.TROUBLED.value))
    rank = Case(troubled, default=F("own_rank"), output_field=PositiveSmallIntegerField())
    return rows.annotate(**{"rank": rank})


def counts(rows: QuerySet[Query]) -> dict[str, int]:
    """Return the number of ranked rows in each of `GROUPS`, in one aggregate query."""
    # Prefixed names: one equal to an annotation's would refer to that.
    wanted = {f"in_{name}": Count("pk", filter=condition) for name, condition in GROUPS.items()}
    counted: dict[str, Any] = rows.order_by().aggregate(**wanted)
    return {name: counted[f"in_{name}"] for name in GROUPS}


def kinds() -> dict[str, int]:
    """Return the number of existing queries by verdict, or else by phase, in one query."""
    rows = visible.queries().filter(archived_at=None).order_by().values_list("phase", "verdict")
    by_kind: Counter[str] = Counter()
    for phase, verdict, count in rows.annotate(Count("pk")):
        by_kind[verdict if verdict and phase in JUDGED_PHASES else phase] += count
    return dict(by_kind)


def input_rate() -> float:
    """Return the total input rate of running queries, in rows per second, by their last batches."""
    rows = visible.queries().filter(archived_at=None, phase=Phase.RUNNING)
    reading = rows.exclude(verdict__in=sorted(QUIET_VERDICTS)).order_by()
    return heard.input_rate(reading.values("pk"))


def _foreign(now: datetime) -> Iterable[int]:
    """Return the queries whose checkpoints contain foreign batches."""
    rows = Checkpoint.objects.filter(retired_at=None, foreign_last__isnull=False).order_by()
    return rows.filter(foreign_at__gte=now - FOREIGN_SHOWN_FOR).values_list("query", flat=True)


def _with_holes() -> set[int]:
    """Return the queries with missing batches from their newest run's driver."""
    holes = heard.open_holes()
    newest = newest_runs(sorted({query for query, _ in holes}))
    return {
        query for query, driver in holes if query in newest and newest[query].driver_id == driver
    }


#: A query's own labels take precedence over its application's.
LABELS = ("labels", "application__labels")


#: The columns of fields that are one of the term's values.
_COLUMNS = {"application": "application__name", "owner": "application__team__name"}


def queries(selection: Selection = (), *, now: datetime) -> QuerySet[Query]:
    """Return the existing queries that match, with rank and application, by name."""
    rows = visible.queries().filter(archived_at__isnull=True)
    rows = ranked(rows.select_related("application__team", "target_revision"), now=now)
    return matching(rows, selection).order_by("name")


def selected(selection: Selection) -> QuerySet[Query]:
    """Return the existing queries that match a bulk request's selector, by name.

    Queries started by a script are excluded: they are not started or stopped individually.
    """
    rows = visible.queries().filter(archived_at__isnull=True, identity="")
    return matching(rows.select_related("application__team"), selection).order_by("name")


def matching(rows: QuerySet[Query], selection: Selection) -> QuerySet[Query]:
    """Return the rows that match; those of `queries` can also be selected by group.

    An unknown group matches every query. A query's own labels take precedence.
    """
    rows = labelled(rows, selection, *LABELS)
    for term in selection:
        if term.is_label:
            continue
        match term.name:
            case "search":  # in the names of queries and applications
                own = Q(name__icontains=term.values[0])
                holds = own | Q(application__name__icontains=term.values[0])
            case "group":
                holds = GROUPS.get(term.values[0], Q())
            case "health":
                holds = Q(phase__in=sorted(JUDGED_PHASES), verdict__in=term.values)
            case "pool":
                rows = rows.alias(pool=_pool())
                holds = Q(pool__in=term.values)
            case "team":
                team = Coalesce("application__team__name", Value(""))
                rows = rows.alias(team_label=label("team", *LABELS), team_name=team)
                labels = Q(team_label__in=term.values)
                none = "" in term.values  # no team, or no label with this name
                both = Q(team_name="") & labels
                holds = both if none else Q(team_name__in=term.values) | labels
            case name:
                holds = Q(**{f"{_COLUMNS.get(name, name)}__in": term.values})
        rows = rows.exclude(holds) if term.is_not else rows.filter(holds)
    return rows


def _pool() -> Coalesce:
    """Return the pool of the running revision, or else of the newest one."""
    running = visible.runs().filter(query=OuterRef("pk"), outcome=RunOutcome.OPEN)
    newest = QueryRevision.objects.filter(query=OuterRef("pk")).order_by("-number")
    return Coalesce(
        Subquery(running.values(at=KeyTextTransform("pool", "revision__spec"))[:1]),
        Subquery(newest.values(at=KeyTextTransform("pool", "spec"))[:1]),
        Value(""),
        output_field=TextField(),
    )
