"""The overview and the list of queries, with each query's derived values, as live fragments.

The database filters, sorts, counts and pages (`queries.selectors.supervision.query_filters`); lines
are assembled only for the rows shown, and only those are redrawn.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.request import QueryDict
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.definitions.labels import Selection, parse_filters
from queries.domain.definitions.spec import TRIGGERS, TriggerKind
from queries.domain.errors import Invalid
from queries.domain.labels import verdict_label
from queries.domain.states import QUIET_VERDICTS, GroupStatus, Phase, Verdict, verbs_of
from queries.domain.supervision.health.head import Head
from queries.domain.triggers.kinds import KINDS as KINDS_KINDS
from queries.models.access.accounts import SavedView
from queries.models.definitions import Query
from queries.roles import VIEW
from queries.selectors.access import teams
from queries.selectors.console import names_in_drivers, names_of, outcomes
from queries.selectors.failures.failures import failure_groups
from queries.selectors.query_lines import QueryLine, lines_of
from queries.selectors.rows import label, label_names
from queries.selectors.supervision.applications import applications
from queries.selectors.supervision.history import audit
from queries.selectors.supervision.query_filters import GROUPS as QUERY_FILTERS_GROUPS
from queries.selectors.supervision.query_filters import (
    LABELS,
    RANK,
    counts,
    input_rate,
    kinds,
    queries,
)
from queries.services.saved_views import forget_view, save_view
from queries.views.console.errors import refused
from queries.views.console.fragments import (
    ROWS,
    Changes,
    Drawn,
    fragments,
    keys,
    listed,
    newcomers,
    numbers,
    parts,
)
from queries.views.console.shell import needs, user_of
from queries.views.console.wording import TONES
from queries.views.supervision.charts import BarSlot, draw, lanes


@dataclass(frozen=True, slots=True)
class QueryRow:
    """The contents of a row, or of the head on a query's page."""

    line: QueryLine
    bars: list[BarSlot]
    can: str  # the verbs that currently make sense: "start", "stop restart"…
    trigger: str
    load: float | None  # batch duration as a share of the trigger's interval
    fresh: bool  # the last batch's numbers are still valid

    @property
    def troubled(self) -> bool:
        """Return whether the query needs attention."""
        return self.line.troubled

    @property
    def head(self) -> Head:
        """Return the query's head."""
        return self.line.head

    @property
    def load_width(self) -> int:
        """Return the width of the load meter in its 48 units."""
        return min(48, round(48 * (self.load or 0)))


def rows_of(lines: list[QueryLine]) -> list[QueryRow]:
    """Return the rows for these lines, in order, with one database read for all."""
    ended = outcomes(bar.run for line in lines for bar in line.bars)
    return [row_of(line, ended) for line in lines]


def row_of(line: QueryLine, ended: dict[int, str]) -> QueryRow:
    """Return the row for one line."""
    load = None
    if line.progress and line.interval_ms and line.progress.batch_duration_ms is not None:
        load = line.progress.batch_duration_ms / line.interval_ms
    return QueryRow(
        line=line,
        bars=draw(line.bars, interval_ms=line.interval_ms, outcomes=ended),
        can=" ".join(verbs_of(line.query.desired, line.phase, line.query.phase_reason)),
        trigger=trigger_words(line.trigger),
        load=load,
        fresh=line.phase is Phase.RUNNING and line.progress is not None and not is_idle(line),
    )


def is_idle(line: QueryLine) -> bool:
    """Return whether the query is running but reading nothing, so its last rates are outdated."""
    return line.health is not None and line.health.verdict in QUIET_VERDICTS


def trigger_words(trigger: dict[str, Any]) -> str:
    """Describe a trigger: "every 5 seconds", "as fast as possible", "once"."""
    kind = trigger.get("kind")
    interval = str(trigger.get("interval", ""))
    if kind == TriggerKind.PROCESSING_TIME and interval.startswith("0 "):
        return "as fast as possible"
    trigger_kind = (
        KINDS_KINDS[TriggerKind(str(kind))] if kind in TRIGGERS else KINDS_KINDS[TriggerKind.ONCE]
    )
    return trigger_kind.words.format(interval=interval)


#: Maximum queries in one bulk action: each is shown beforehand, and with its result.
BULK_AT_MOST = 200
#: Maximum applications offered in a list; if there are more, users type the name.
OFFERED_AT_MOST = 100
#: The groups of `query_filters.GROUPS`: label, tone.
GROUPS = {
    "all": ("All", ""),
    "attention": ("Needs attention", "bad"),
    "risk": ("At risk", "bad"),
    "running": ("Running", "ok"),
    "changing": ("Changing", "busy"),
    "stopped": ("Stopped", "calm"),
}
#: Parameters kept in the list's URLs.
NAMES = ("q", "application", "team", "health", "phase", "label", "group", "by")


def filters_of(params: QueryDict) -> Selection:
    """Return the selection in a URL of the list; an unknown state matches nothing."""
    return parse_filters({name: params.get(name, "").strip() for name in NAMES if name != "by"})


@needs(VIEW)
def queries_page(request: HttpRequest) -> HttpResponse:
    """List the queries that are not deleted; every filter is in the URL."""
    now = timezone.now()
    params = {name: request.GET.get(name, "").strip() for name in NAMES}
    counted = counts(queries(now=now))
    matching = _ordered(queries(filters_of(request.GET), now=now), params["by"])
    # Sorting thousands of complete rows takes longer than sorting their IDs.
    paginator = Paginator(matching.values_list("pk", flat=True), ROWS)
    if not any(params[name] for name in NAMES if name not in ("group", "by")):
        paginator.count = counted.get(params["group"] or "all", counted["all"])  # already known
    page = paginator.get_page(request.GET.get("page"))
    rows = rows_of(lines_of(matching.filter(pk__in=list(page.object_list)), now=now))
    offered = applications().filter(own=False).values_list("name", flat=True)
    context = {
        "now": now,
        "page": page,
        "sections": list(_sections(rows, params["by"])),
        "any": counted["all"] > 0,
        "asked": params,
        "filtered": any(params[name] for name in NAMES if name != "by"),
        "groups": _groups(counted, params["group"]),
        "applications": list(offered[: OFFERED_AT_MOST + 1]),
        "offered_at_most": OFFERED_AT_MOST,
        "verdicts": list(Verdict),
        "label_names": label_names(),
        "teams": list(teams().values_list("name", flat=True)),
        "topic": listed("queries", (row.line.query.pk for row in rows), now),
        "matching": [(name, params[name]) for name in NAMES if name != "by" and params[name]],
        "more_match": page.paginator.count > len(rows),
        "bulk_at_most": BULK_AT_MOST,
        "views": SavedView.objects.filter(user=user_of(request)),
        "origin": request.build_absolute_uri("/")[:-1],
    }
    return render(request, "supervision/queries/list.html", context)


def _ordered(rows: QuerySet[Query], by: str) -> QuerySet[Query]:
    """Return the rows by group, and within each group those that need attention first."""
    if by == "application":
        return rows.annotate(section=F("application__name")).order_by("section", RANK, "name")
    if by:
        return rows.annotate(section=label(by, *LABELS)).order_by("section", RANK, "name")
    return rows.order_by(RANK, "name")


def _sections(rows: list[QueryRow], by: str) -> Iterator[tuple[str, list[QueryRow]]]:
    """Yield the rows under their headings; "" if they are not grouped."""

    def heading(row: QueryRow) -> str:
        section: str = getattr(row.line.query, "section", "")
        return section or (f"no {by}" if by else "")

    for head, same in groupby(rows, heading):
        yield head, list(same)


def _groups(counted: Mapping[str, int], chosen: str) -> list[dict[str, Any]]:
    both = [(name, "" if name == "all" else name) for name in GROUPS]
    return [
        {
            "key": key,
            "label": GROUPS[name][0],
            "id": name,
            "tone": GROUPS[name][1],
            "count": counted[name],
            "chosen": key == chosen,
        }
        for name, key in both
    ]


@needs(VIEW, "POST")
def keep_view(request: HttpRequest) -> HttpResponse:
    """Save the list's filters under a name, for this user."""
    list_filters = {name: request.POST.get(name, "").strip() for name in NAMES}
    user, called = user_of(request), request.POST.get("view", "")
    address = f"{reverse('queries')}?{urlencode({k: v for k, v in list_filters.items() if v})}"
    try:
        view = save_view(user=user, name=called, filters=list_filters, now=timezone.now())
    except Invalid as error:
        return refused(request, error, address)
    messages.success(request, f"View {view.name} was saved.")
    return redirect(address)


@needs(VIEW, "POST")
def drop_view(request: HttpRequest, view_id: int) -> HttpResponse:
    """Remove one of this user's views."""
    forget_view(user=user_of(request), view_id=view_id)
    return redirect("queries")


@fragments("queries", hears=("query", "driver", "application"))
def draw_rows(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the visible rows of the changed queries, and the counts above the list."""
    every = queries(now=now)
    rows = every.filter(pk__in=numbers(key))
    named = _names(changes)
    if named is not None:
        rows = rows.filter(name__in=named)
    for row in rows_of(lines_of(rows, now=now)):
        html = render_to_string("supervision/queries/_row.html", {"row": row, "now": now})
        yield f"row-{row.line.query.pk}", html
    for name, count in counts(every).items():
        html = render_to_string("supervision/queries/_count.html", {"id": name, "n": count})
        yield f"count-{name}", html
    yield from newcomers("queries", every, key)


def _names(changes: Changes) -> set[str] | None:
    """Return the names of the queries that may have changed; None for all of them."""
    if changes is None or keys(changes, "application"):
        return None
    named = list(names_of(keys(changes, "query")).values())
    return {*named, *names_in_drivers(keys(changes, "driver"))}


urlpatterns = [
    path("queries/", queries_page, name="queries"),
    path("saved-views/", keep_view, name="saved-views"),
    path("saved-views/<int:view_id>/forget/", drop_view, name="saved-view-forget"),
]


ATTENTION_AT_MOST = 12
FAILURES_SHOWN = 6
ACTS_SHOWN = 8

#: The order of the strip, from running well to at rest; each query counts once.
_PHASES = "RUNNING STARTING PENDING STOPPING BACKOFF ON_HOLD FAILED UNREACHABLE COMPLETED STOPPED"
KINDS = (*map(str, Verdict), *_PHASES.split())
_PARTS = ("health", "attention", "lanes", "failures", "acts")


@needs(VIEW)
def overview(request: HttpRequest) -> HttpResponse:
    """Show the entire installation on one page."""
    now = timezone.now()
    return render(request, "supervision/overview/overview.html", _context(now) | {"parts": _PARTS})


def _context(now: datetime) -> dict[str, Any]:
    rows = queries(now=now)
    counted = counts(rows)
    troubled = rows.filter(QUERY_FILTERS_GROUPS["attention"]).order_by(RANK, "name")[
        :ATTENTION_AT_MOST
    ]
    return {
        "now": now,
        "total": counted["all"],
        "running": counted["running"],
        "kinds": _kinds(),
        "input_rate": input_rate(),
        "troubled": rows_of(lines_of(troubled, now=now)),
        "troubled_count": counted["attention"],
        "picture": lanes(now),
        "groups": failure_groups(status=GroupStatus.OPEN)[:FAILURES_SHOWN],
        "acts": audit()[:ACTS_SHOWN],
    }


def _kinds() -> list[dict[str, Any]]:
    """Return the kinds that occur: {word, label, tone, count, address}."""
    counted = kinds()
    return [
        {
            "label": verdict_label(kind),
            "tone": TONES[kind],
            "count": counted[kind],
            "asked": f"health={kind}" if kind in set(Verdict) else f"phase={kind}",
        }
        for kind in KINDS
        if kind in counted
    ]


@fragments("overview", hears=("query", "driver", "application", "group", "failures"))
def draw_overview(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the parts of the overview."""
    return parts(_PARTS, "overview", "supervision/overview", "", _context(now))


urlpatterns += [path("", overview, name="overview")]
