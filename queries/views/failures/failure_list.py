"""The list of failure groups, with live updates."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path
from django.utils import timezone

from queries.domain.states import GroupStatus
from queries.models.failures import FailureGroup
from queries.roles import VIEW
from queries.selectors.failures.failures import failure_groups
from queries.selectors.failures.occurrences import group_counts, occurrences
from queries.views.console.fragments import Changes, Drawn, fragments, keys
from queries.views.console.guard import needs
from queries.views.console.paging import ARRIVALS, ROWS, filters, filters_from_key, page_of, topic

#: The list's tabs: name in the URL -> (label, filter).
TABS: dict[str, tuple[str, dict[str, Any]]] = {
    "open": ("Open", {"status": GroupStatus.OPEN}),
    "regressed": ("Regressed", {"status": GroupStatus.OPEN, "regressed_at__isnull": False}),
    "resolved": ("Resolved", {"status": GroupStatus.RESOLVED}),
    "all": ("All", {}),
}
_FILTERS = ("application", "query", "q")


@needs(VIEW)
def failure_list(request: HttpRequest) -> HttpResponseBase:
    """List the failure groups, most recently seen first; all filters are in the URL."""
    list_filters = _list_filters(request.GET)
    page = page_of(_rows(list_filters), by="last_seen", cursor=request.GET.get("after", ""))
    now = timezone.now()
    counts = group_counts()
    context = {
        "page": page,
        "groups": _with_bars(page.rows, now),
        "tabs": [(name, words, counts.get(name, 0)) for name, (words, _) in TABS.items()],
        "chosen": list_filters["status"],
        "filters": list_filters,
        "filtered": any(list_filters[name] for name in _FILTERS),
        "topic": topic("failures", list_filters),
        "now": now,
    }
    return render(request, "failures/list.html", context)


def _list_filters(params: Mapping[str, str]) -> dict[str, str]:
    return filters(params, _FILTERS, status=TABS)


def _rows(list_filters: Mapping[str, str]) -> QuerySet[FailureGroup]:
    rows = failure_groups(
        search=list_filters["q"],
        application=list_filters["application"],
        query=list_filters["query"],
    )
    return rows.filter(**TABS[list_filters["status"]][1])


@dataclass(frozen=True, slots=True)
class OccurrenceBar:
    """One bar of a small chart, in the units of its 96 × 20 picture."""

    x: int
    y: float
    height: float
    count: int


def _with_bars(
    groups: list[FailureGroup], now: datetime
) -> list[tuple[FailureGroup, list[OccurrenceBar]]]:
    counted = occurrences([group.pk for group in groups], now=now)
    return [(group, _bars(counted[group.pk])) for group in groups]


def _bars(counts: list[int]) -> list[OccurrenceBar]:
    most = max([*counts, 4])
    heights = [max(2.0, 20 * count / most) if count else 0.0 for count in counts]
    return [
        OccurrenceBar(4 * i, 20 - h, h, n)
        for i, (h, n) in enumerate(zip(heights, counts, strict=True))
    ]


@fragments("failures", hears=("group",))
def draw_failures(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the rows of changed groups, new groups, and the counts on the tabs.

    A row is drawn regardless of its status: a group that was resolved elsewhere shows its
    new status in place.
    """
    list_filters = _list_filters(filters_from_key(key))
    rows = failure_groups()
    if changes is None:
        listed_ids = _rows(list_filters)[:ROWS].values_list("pk", flat=True)
        lately = rows[:ROWS].values_list("pk", flat=True)
        groups = rows.filter(pk__in={*listed_ids, *lately})
    else:
        groups = rows.filter(pk__in=keys(changes, "group"))
    for group, bars in _with_bars(list(groups), now):
        context = {"group": group, "bars": bars, "now": now}
        yield f"group-{group.pk}", render_to_string("failures/_row.html", context)
    newest = sorted(
        _rows(list_filters)[:ARRIVALS], key=lambda group: -group.pk
    )  # they keep their order
    context = {"groups": _with_bars(newest, now), "now": now}
    yield "failures-arrived", render_to_string("failures/_arrived.html", context)
    for name, count in group_counts().items():
        context = {"name": name, "count": count}
        yield f"failures-{name}", render_to_string("failures/_count.html", context)


urlpatterns = [path("failures/", failure_list, name="failures")]
