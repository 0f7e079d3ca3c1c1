"""The checkpoints page: each location, and the query and epoch that hold it."""

from dataclasses import dataclass
from datetime import datetime

from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path
from django.utils import timezone

from queries.domain.protocol import WarningCode
from queries.domain.states import RunOutcome
from queries.models.definitions import Checkpoint
from queries.models.drivers import Run
from queries.roles import VIEW
from queries.selectors.checkpoints import checkpoints, run_counts
from queries.views.console.fragments import (
    Changes,
    Drawn,
    fragments,
    keys,
    listed,
    newcomers,
    numbers,
)
from queries.views.console.guard import needs
from queries.views.console.paging import ROWS


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint with its newest run; `holder` is that run while it is open."""

    checkpoint: Checkpoint
    newest: Run | None
    holder: Run | None
    not_fenced: str  # why nothing kept a second driver out of the newest run, "" if something did
    runs: int


@needs(VIEW)
def checkpoint_list(request: HttpRequest) -> HttpResponseBase:
    """List checkpoints, held ones first; include retired ones if requested."""
    search = request.GET.get("q", "").strip()
    now = timezone.now()
    retired = request.GET.get("retired") == "1"
    rows = checkpoints().filter(retired_at__isnull=not retired)
    if search:
        rows = rows.filter(Q(location__icontains=search) | Q(query__name__icontains=search))
    page = Paginator(rows, ROWS).get_page(request.GET.get("page"))
    shown = list(page.object_list)
    context = {
        "page": page,
        "rows": _rows(shown),
        "topic": listed("checkpoints", (checkpoint.pk for checkpoint in shown), now),
        "search": search,
        "retired": retired,
        "now": now,
    }
    return render(request, "checkpoints/list.html", context)


def _rows(shown: list[Checkpoint]) -> list[CheckpointRow]:
    counted = run_counts(shown)
    return [_row(checkpoint, counted.get(checkpoint.pk, 0)) for checkpoint in shown]


def _row(checkpoint: Checkpoint, runs: int) -> CheckpointRow:
    newest = next(iter(getattr(checkpoint, "newest_runs")), None)  # noqa: B009 - prefetched
    return CheckpointRow(
        checkpoint=checkpoint,
        newest=newest,
        holder=newest if newest and not newest.outcome else None,
        not_fenced=WarningCode.NOT_FENCED.find_in(newest.warnings) if newest else "",
        runs=runs,
    )


@fragments("checkpoints", hears=("query", "driver"))
def draw_checkpoints(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the visible rows of changed queries, and the number of new queries."""
    rows = checkpoints().filter(pk__in=numbers(key))
    if changes is not None:
        in_use = Q(runs__driver__in=keys(changes, "driver"), runs__outcome=RunOutcome.OPEN)
        rows = rows.filter(Q(query__in=keys(changes, "query")) | in_use).distinct()
    for row in _rows(list(rows)):
        html = render_to_string("checkpoints/_row.html", {"row": row, "now": now})
        yield f"checkpoint-{row.checkpoint.pk}", html
    yield from newcomers("checkpoints", checkpoints().filter(retired_at=None), key)


urlpatterns = [path("checkpoints/", checkpoint_list, name="checkpoints")]
