"""The overview: the state of all queries, problems, failures, and recent activity."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone

from queries.domain.states import GroupStatus, Verdict
from queries.roles import VIEW
from queries.selectors.failures.failures import failure_groups
from queries.selectors.query_lines import lines_of
from queries.selectors.supervision.history import audit
from queries.selectors.supervision.query_filters import queries
from queries.selectors.supervision.query_groups import GROUPS, RANK, counts, input_rate, kinds
from queries.views.console.fragments import Changes, Drawn, fragments, parts
from queries.views.console.guard import needs
from queries.views.console.wording import TONES, words
from queries.views.supervision.lanes import lanes
from queries.views.supervision.query_rows import rows_of

ATTENTION_AT_MOST = 12
FAILURES_SHOWN = 6
ACTS_SHOWN = 8

#: The order of the strip, from running well to at rest; each query counts once.
_PHASES = "RUNNING STARTING PENDING STOPPING BACKOFF BROKEN FAILED LOST COMPLETED STOPPED"
KINDS = (*map(str, Verdict), *_PHASES.split())
_PARTS = ("health", "attention", "lanes", "failures", "acts")


@needs(VIEW)
def overview(request: HttpRequest) -> HttpResponse:
    """Show the whole installation on one page."""
    now = timezone.now()
    return render(request, "supervision/overview/overview.html", _context(now) | {"parts": _PARTS})


def _context(now: datetime) -> dict[str, Any]:
    rows = queries(now=now)
    counted = counts(rows)
    troubled = rows.filter(GROUPS["attention"]).order_by(RANK, "name")[:ATTENTION_AT_MOST]
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
            "label": words(kind),
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


urlpatterns = [path("", overview, name="overview")]
