"""The list of queries, and its rows as live fragments.

The database filters, sorts, counts and pages (`queries.selectors.supervision.query_groups`); lines
are assembled only for the rows shown, and only those are redrawn.
"""

from collections.abc import Iterator, Mapping
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

from queries.domain.definitions.selection import Selection, parse_filters
from queries.domain.errors import Invalid
from queries.domain.states import Verdict
from queries.models.definitions import Query
from queries.models.saved_views import SavedView
from queries.roles import VIEW
from queries.selectors.access.teams import teams
from queries.selectors.console.badges import names_in_drivers, names_of
from queries.selectors.labels import label, label_names
from queries.selectors.query_lines import lines_of
from queries.selectors.supervision.applications import applications
from queries.selectors.supervision.query_filters import LABELS, queries
from queries.selectors.supervision.query_groups import RANK, counts
from queries.services.console.saved_views import forget_view, save_view
from queries.views.console.errors import refused
from queries.views.console.fragments import (
    Changes,
    Drawn,
    fragments,
    keys,
    listed,
    newcomers,
    numbers,
)
from queries.views.console.guard import needs, user_of
from queries.views.console.paging import ROWS
from queries.views.supervision.query_rows import QueryRow, rows_of

#: Maximum queries in one bulk action: each is shown beforehand, and with its result.
BULK_AT_MOST = 200
#: Maximum applications offered in a list; if there are more, users type the name.
OFFERED_AT_MOST = 100
#: The groups of `standing.GROUPS`: label, tone.
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
