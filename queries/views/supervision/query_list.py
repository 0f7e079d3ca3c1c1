"""The list of queries, and its rows as live fragments."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path
from django.utils import timezone

from queries.domain.states import Verdict
from queries.roles import VIEW
from queries.selectors.console.badges import names_in_drivers, names_of
from queries.selectors.query_lines import query_lines
from queries.selectors.supervision.applications import applications
from queries.views.console.fragments import Changes, Drawn, fragments, keys
from queries.views.console.guard import needs
from queries.views.supervision.query_rows import (
    GROUPS,
    Row,
    attention_first,
    counts,
    in_group,
    rows_of,
)


@needs(VIEW)
def queries_page(request: HttpRequest) -> HttpResponse:
    """List the living queries; every filter is in the address."""
    now = timezone.now()
    asked = {
        name: request.GET.get(name, "") for name in ("q", "application", "health", "phase", "group")
    }
    everything = rows_of(query_lines(now=now))
    narrowed = (
        rows_of(
            query_lines(
                now=now,
                search=asked["q"],
                application=asked["application"],
                verdicts=(asked["health"],) if asked["health"] else (),
                phases=(asked["phase"],) if asked["phase"] else (),
            )
        )
        if any(asked[name] for name in ("q", "application", "health", "phase"))
        else everything
    )
    rows = [row for row in narrowed if in_group(row, asked["group"])]
    context = {
        "now": now,
        "rows": attention_first(rows),
        "any": bool(everything),
        "asked": asked,
        "filtered": any(asked.values()),
        "groups": _groups(everything, asked["group"]),
        "applications": [row.name for row in applications() if not row.own],
        "verdicts": list(Verdict),
        "origin": request.build_absolute_uri("/")[:-1],
    }
    return render(request, "supervision/queries/list.html", context)


def _groups(rows: list[Row], chosen: str) -> list[dict[str, Any]]:
    counted = counts(rows)
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


@fragments("queries", hears=("query", "driver", "application"))
def draw_rows(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the rows of the changed queries, and the counts above the list."""
    lines = query_lines(now=now, names=_names(changes)) if _some(changes) else []
    for row in rows_of(lines):
        html = render_to_string("supervision/queries/_row.html", {"row": row, "now": now})
        yield f"row-{row.line.query.pk}", html
    for name, count in counts(rows_of(query_lines(now=now, bars=0))).items():
        html = render_to_string("supervision/queries/_count.html", {"id": name, "n": count})
        yield f"count-{name}", html


def _names(changes: Changes) -> tuple[str, ...]:
    """Return the names to draw; none where everything may have changed."""
    if changes is None or keys(changes, "application"):
        return ()
    named = list(names_of(keys(changes, "query")).values())
    return tuple({*named, *names_in_drivers(keys(changes, "driver"))})


def _some(changes: Changes) -> bool:
    return changes is None or bool(keys(changes, "application")) or bool(_names(changes))


urlpatterns = [path("queries/", queries_page, name="queries")]
