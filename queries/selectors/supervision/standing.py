"""How queries stand, as conditions of the database: whom to look at first, what is changing.

Lists are narrowed, sorted and counted by these, so that no row is read that is not shown.
Verdicts are those that `queries.services.supervision.verdicts` noted last: seconds old at most.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from django.db.models import (
    BooleanField,
    Case,
    Count,
    F,
    Q,
    QuerySet,
    Value,
    When,
)

from listeners import selectors as heard
from queries.domain.states import (
    HANGING_REASONS,
    STOPPED_PHASES,
    TROUBLED_PHASES,
    TROUBLED_VERDICTS,
    Desired,
    Hold,
    Phase,
    Verdict,
)
from queries.models.definitions import Checkpoint, Query
from queries.selectors.failures.occurrences import crash_loops
from queries.selectors.newest import newest_runs

#: Somebody else's batches are shown with the query for this long; its checkpoint keeps them.
FOREIGN_SHOWN_FOR = timedelta(hours=24)

#: Phases in which health is judged.
JUDGED = (Phase.RUNNING, Phase.STARTING)

_RUNNING = Q(desired=Desired.RUNNING)
_STOPPED = Q(phase__in=sorted(STOPPED_PHASES))
#: Desired and actual differ, and nobody has to act.
CHANGING = Q(desired=Desired.STOPPED) & ~_STOPPED | ~Q(desired=Desired.STOPPED) & ~Q(
    phase=Phase.RUNNING
) & (Q(hold=Hold.NONE) | ~Q(generation=F("seen_generation")))
#: The query is wanted and cannot reach its source.
CUT_OFF = _RUNNING & Q(source_unreachable_since__isnull=False)
AT_RISK = ~Q(risk="")
#: The groups that a list of queries can be narrowed to, of rows with their standing.
GROUPS = {
    "all": Q(),
    "attention": Q(troubled=True),
    "risk": AT_RISK,
    "running": Q(phase=Phase.RUNNING),
    "changing": Q(changing=True),
    "stopped": _STOPPED,
}


def with_standing(rows: QuerySet[Query], *, now: datetime) -> QuerySet[Query]:
    """Add to each row whether somebody should look at it (`troubled`), and whether it changes.

    Asks the database for what is rare (crash loops, missing batches) and leaves the rest to it.
    """
    ill = Q(phase__in=JUDGED, verdict__in=sorted(TROUBLED_VERDICTS))
    hangs = Q(phase_reason__in=sorted(HANGING_REASONS))
    rare = {*crash_loops(now=now), *_with_holes(), *_foreign(now)}
    troubled = Q(phase__in=sorted(TROUBLED_PHASES)) | AT_RISK | CUT_OFF | ill | hangs
    if rare:
        troubled |= Q(pk__in=sorted(rare))
    return rows.annotate(**{"troubled": _is(troubled), "changing": _is(CHANGING)})


#: The order of a list: those at risk, those in trouble, the others.
RANK = Case(When(AT_RISK, then=Value(0)), When(troubled=True, then=Value(1)), default=Value(2))


def counts(rows: QuerySet[Query]) -> dict[str, int]:
    """Return how many rows, with their standing, each of `GROUPS` has: one aggregate."""
    # Under names of their own: one like an annotation's would be taken for it.
    wanted = {f"in_{name}": Count("pk", filter=asked) for name, asked in GROUPS.items()}
    found: dict[str, Any] = rows.order_by().aggregate(**wanted)
    return {name: found[f"in_{name}"] for name in GROUPS}


def kinds() -> dict[str, int]:
    """Return how many living queries have each verdict, or else each phase: one aggregate."""
    judged = Q(phase__in=JUDGED) & ~Q(verdict="")
    kind = Case(When(judged, then=F("verdict")), default=F("phase"))
    rows = Query.objects.filter(archived_at=None).order_by().values_list(kind)
    return {str(name): count for name, count in rows.annotate(Count("pk"))}


def input_rate() -> float:
    """Return the input rows a second of all queries that run and read, by their last batches."""
    rows = Query.objects.filter(archived_at=None, phase=Phase.RUNNING)
    reading = rows.exclude(verdict__in=[Verdict.IDLE, Verdict.WAITING]).order_by()
    rates = heard.input_rates(reading.values_list("pk", flat=True))
    return sum(rate for rate in rates if isinstance(rate, int | float) and isfinite(rate))


def _is(condition: Q) -> Case:
    return Case(
        When(condition, then=Value(True)),
        default=Value(False),
        output_field=BooleanField(),
    )


def _foreign(now: datetime) -> Iterable[int]:
    """Return the queries whose checkpoints hold somebody else's batches."""
    rows = Checkpoint.objects.filter(retired_at=None, foreign_last__isnull=False)
    return rows.filter(foreign_at__gte=now - FOREIGN_SHOWN_FOR).values_list("query", flat=True)


def _with_holes() -> set[int]:
    """Return the queries with missing batches of their newest run's driver."""
    holes = heard.open_holes()
    newest = newest_runs(sorted({query for query, _ in holes}))
    return {
        query for query, driver in holes if query in newest and newest[query].driver_id == driver
    }
