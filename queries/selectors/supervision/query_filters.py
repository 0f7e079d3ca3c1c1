"""Select queries for lists, bulk actions and REST calls: filters as database conditions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import OuterRef, Q, QuerySet, Subquery, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from queries.domain.definitions.selection import Term
from queries.domain.states import JUDGED_PHASES, RunOutcome
from queries.models.definitions import Query, QueryRevision
from queries.models.drivers import Run
from queries.selectors.labels import label, labelled
from queries.selectors.supervision.query_groups import GROUPS, ranked

#: A query's own labels take precedence over its application's.
LABELS = ("labels", "application__labels")


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters on existing queries; empty filters match everything."""

    names: tuple[str, ...] = ()
    application: str = ""
    team: str = ""
    phases: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()
    desired: str = ""
    pool: str = ""
    search: str = ""  # in the names of queries and applications
    #: Its own, else its application's; "" means no such label, None any value.
    labels: Mapping[str, str | None] = field(default_factory=dict)
    group: str = ""  # of `standing.GROUPS`; an unknown group matches every query


def queries(filters: Filters, *, now: datetime) -> QuerySet[Query]:
    """Return the rows of existing queries with rank and application, by name."""
    rows = Query.objects.filter(archived_at__isnull=True)
    rows = rows.select_related("application__team", "target_revision")
    if filters.names:
        rows = rows.filter(name__in=filters.names)
    if filters.application:
        rows = rows.filter(application__name=filters.application)
    if filters.team:
        rows = rows.filter(application__team__name=filters.team)
    if filters.phases:
        rows = rows.filter(phase__in=filters.phases)
    if filters.verdicts:
        rows = rows.filter(phase__in=sorted(JUDGED_PHASES), verdict__in=filters.verdicts)
    if filters.desired:
        rows = rows.filter(desired=filters.desired)
    if filters.search:
        own = Q(name__icontains=filters.search)
        rows = rows.filter(own | Q(application__name__icontains=filters.search))
    if filters.pool:
        rows = rows.alias(pool=_pool()).filter(pool=filters.pool)
    rows = labelled(rows, filters.labels, *LABELS)
    rows = ranked(rows, now=now)
    return rows.filter(GROUPS.get(filters.group, Q())).order_by("name")


def _pool() -> Coalesce:
    """Return the pool of the running revision, or else of the newest one."""
    running = Run.objects.filter(query=OuterRef("pk"), outcome=RunOutcome.OPEN)
    newest = QueryRevision.objects.filter(query=OuterRef("pk")).order_by("-number")
    return Coalesce(
        Subquery(running.values(at=KeyTextTransform("pool", "revision__spec"))[:1]),
        Subquery(newest.values(at=KeyTextTransform("pool", "spec"))[:1]),
        Value(""),
        output_field=TextField(),
    )


def selected(terms: Iterable[Term]) -> QuerySet[Query]:
    """Return the existing queries that match all terms of a selector, by name.

    Queries started by a script are excluded: they are not started or stopped individually.
    """
    rows = Query.objects.filter(archived_at__isnull=True, identity="")
    rows = rows.select_related("application__team")
    for number, term in enumerate(terms):
        alias = f"label_{number}"
        labels = Q(**{f"{alias}__in": term.values})
        match term.name:
            case "phase" | "desired" | "name":
                holds = Q(**{f"{term.name}__in": term.values})
            case "application":
                holds = Q(application__name__in=term.values)
            case "health":
                holds = Q(phase__in=sorted(JUDGED_PHASES), verdict__in=term.values)
            case "pool":
                rows = rows.alias(pool=_pool())
                holds = Q(pool__in=term.values)
            case "team":
                rows = rows.alias(**{alias: label("team", *LABELS)})
                team = Coalesce("application__team__name", Value(""))
                rows = rows.alias(team_name=team)
                none = "" in term.values  # no team, or no label with this name
                both = Q(team_name="") & labels
                holds = both if none else Q(team_name__in=term.values) | labels
            case name:
                rows = rows.alias(**{alias: label(name, *LABELS)})
                holds = labels
        rows = rows.exclude(holds) if term.is_not else rows.filter(holds)
    return rows.order_by("name")
