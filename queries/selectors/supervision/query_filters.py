"""Apply a selection of queries as database conditions."""

from datetime import datetime

from django.db.models import OuterRef, Q, QuerySet, Subquery, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from queries.domain.definitions.selection import Selection
from queries.domain.states import JUDGED_PHASES, RunOutcome
from queries.models.definitions import Query, QueryRevision
from queries.selectors import visible
from queries.selectors.labels import label, labelled
from queries.selectors.supervision.query_groups import GROUPS, ranked

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
