"""Checkpoints: the list of locations, and one in detail with its batches, state and copies."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone

from queries.checkpoints import batches
from queries.checkpoints.batches import LoggedBatch
from queries.checkpoints.logs import CheckpointLogs, NotLocal
from queries.checkpoints.source_logs import log_offset
from queries.domain.checkpoints.batches import RULE as GROWTH_RULE
from queries.domain.checkpoints.batches import UNCOUNTED
from queries.domain.checkpoints.logs import UnreadableLog
from queries.domain.checkpoints.ownership import local_path
from queries.domain.errors import Missing
from queries.domain.kafka.offsets import is_kafka
from queries.domain.protocol import WarningCode
from queries.domain.states import RunOutcome
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.roles import VIEW
from queries.selectors import checkpoints as reads
from queries.selectors.checkpoint_logs import logs_unknown
from queries.selectors.checkpoints import checkpoints, run_counts
from queries.selectors.console import names_of
from queries.selectors.definitions.definitions import query as living_query
from queries.selectors.hosts import about_mirror, elsewhere, logs_to_show, mirror_of, way_to
from queries.services.checkpoints.remote import read_if_old
from queries.services.probes.inspections import records_can_be_read
from queries.storage.remote_checkpoint import CopyCost, MirrorState
from queries.views.console.fragments import (
    ROWS,
    Changes,
    Drawn,
    fragments,
    keys,
    listed,
    newcomers,
    numbers,
    whole,
)
from queries.views.console.shell import needs
from queries.views.supervision.query_page import head


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


PAGE = 50
#: Width and height of the state chart, in its own units.
CHART = (720.0, 120.0)


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One row in the table of batches."""

    batch: LoggedBatch
    rows: int | None  # from the progress, otherwise counted by offsets
    counted: bool  # by offsets, because no event counts them
    repeated: str  # why an event does not count them; "" if one does, or there is none
    ends: tuple[tuple[str, str], ...]  # (source, how far it is read), in words


@needs(VIEW)
def batches_tab(request: HttpRequest, name: str) -> HttpResponse:
    """List the batches in the checkpoint's logs, newest first."""
    context = _head(request, name, "batches")
    before = whole(request.GET.get("before"))
    context |= _batches(context["query"], context["logs"], before)
    context["compare"] = (request.GET.get("one", ""), request.GET.get("other", ""))
    return render(request, "checkpoints/batches.html", context)


@needs(VIEW)
def batch_page(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Show one batch: its offsets in each partition, and the files that it read."""
    context = _head(request, name, "batches")
    logs: CheckpointLogs | None = context["logs"]
    batch = batches.batch_by_number(logs, number) if logs else None
    if logs is None or batch is None:
        raise Missing(f"The checkpoint of {name} does not contain batch {number}.")
    context |= {
        "entry": _lines(context["query"], [batch])[0],
        "files": batches.files_of(logs, number),
        "files_at_most": batches.FILES_AT_MOST,
        "reachable": batch.state == "committed",
        "records_can_be_read": records_can_be_read(context["query"]),
    }
    return render(request, "checkpoints/batch.html", context)


@needs(VIEW)
def compare_page(request: HttpRequest, name: str) -> HttpResponse:
    """Compare any two batches."""
    context = _head(request, name, "batches")
    first, other = whole(request.GET.get("one")), whole(request.GET.get("other"))
    logs: CheckpointLogs | None = context["logs"]
    difference = None
    if logs and first is not None and other is not None:
        difference = batches.compare(logs, first, other)
    if difference is None:
        raise Missing(
            f"The checkpoint of {name} does not contain both batches.",
            way_out="Choose two of the listed batches.",
        )
    rows = reads.rows_of(context["query"], _between(logs, difference))
    context |= {
        "found": difference,
        "pair": _lines(context["query"], [difference.earlier, difference.other]),
        "rows_between": sum(read or 0 for read in rows.values()) if rows else None,
        "uncounted": sum(read is None for read in rows.values()),
        "batches_between": difference.other.number - difference.earlier.number,
    }
    return render(request, "checkpoints/compare.html", context)


@needs(VIEW)
def state_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show the state operators, their growth, and the pinned configuration."""
    context = _head(request, name, "state")
    logs: CheckpointLogs | None = context["logs"]
    query: Query = context["query"]
    history = reads.state_history(query, now=context["now"])
    context |= {
        "operators": reads.operator_lines(query, logs) if logs else [],
        "history": history,
        "chart": _chart(history.points, history.limit_bytes),
        "growth_rule": GROWTH_RULE,
        "pinned": reads.pinned_configuration(query, logs) if logs else [],
    }
    return render(request, "checkpoints/state.html", context)


@needs(VIEW)
def copies_tab(request: HttpRequest, name: str) -> HttpResponse:
    """List the retained copies: snapshots and previous checkpoints."""
    context = _head(request, name, "kept")
    context |= {
        "snapshots": reads.snapshots_of(context["query"])[:200],
        "earlier": reads.earlier_checkpoints(context["query"])[:50],
    }
    return render(request, "checkpoints/snapshots.html", context)


# --- helpers ------------------------------------------------------------------------------


def logs_of(
    checkpoint: Checkpoint | None, now: datetime
) -> tuple[CheckpointLogs | None, MirrorState | None]:
    """Return a checkpoint's logs, None if they cannot be read here, and details of their mirror.

    If the checkpoint is on remote storage, its mirror is shown, and this host's worker reads it
    again; the page is drawn again once there is news.
    """
    if checkpoint is None:
        return None, None
    mirrored = local_path(checkpoint.location) is None
    if mirrored:
        read_if_old(checkpoint, now=now)
    try:
        return logs_to_show(checkpoint.location)
    except NotLocal:
        if not mirrored:
            return None, None
        return None, about_mirror(checkpoint.location, checkpoint.query.application, now=now)


def cost_of(checkpoint: Checkpoint) -> CopyCost | None:
    """Return the cost of a copy of a checkpoint; None for local ones, whose files are linked."""
    if local_path(checkpoint.location) is not None:
        return None
    return mirror_of(checkpoint.location).cost()


def _head(request: HttpRequest, name: str, tab: str) -> dict[str, Any]:
    context = head(request, name, "query-checkpoint")
    query: Query = context["query"]
    checkpoint = query.checkpoints.filter(retired_at=None).first()
    logs, mirror = logs_of(checkpoint, context["now"])
    last = logs.last_commit() if logs else None
    local = checkpoint is not None and local_path(checkpoint.location) is not None
    away_host = elsewhere(query.application) if local else ""
    return {
        **context,
        "checkpoint": checkpoint,
        "logs": logs,
        "local": logs is not None,
        "mirror": mirror,
        "elsewhere": away_host,
        "logs_unknown": logs_unknown(checkpoint.location) if checkpoint and not local else "",
        "way_there": way_to(away_host) if away_host else "",
        "last_commit": last,
        "keeps_state": logs is not None and _keeps_state(logs),
        "parts": _parts(query, tab),
        "busy": reads.open_procedure(query),
    }


def _keeps_state(logs: CheckpointLogs) -> bool:
    """Return whether there is state; True if the folder cannot be listed (its tab shows why)."""
    try:
        return logs.keeps_state()
    except UnreadableLog:
        return True


def _parts(query: Query, tab: str) -> list[dict[str, Any]]:
    parts = (
        ("Batches", "query-checkpoint", "batches", 0),
        ("State and fixed configuration", "query-checkpoint-state", "state", 0),
        ("Kept", "query-checkpoint-kept", "kept", reads.snapshots_of(query).count()),
    )
    return [
        {"label": label, "href": reverse(address, args=[query.name]), "active": key == tab}
        | {"count": count}
        for label, address, key, count in parts
    ]


def _batches(query: Query, logs: CheckpointLogs | None, before: int | None) -> dict[str, Any]:
    batch_list = batches.page(logs, before=before, limit=PAGE + 1) if logs else []
    shown = batch_list[:PAGE]
    return {
        "lines": _lines(query, shown),
        "older": shown[-1].number if len(batch_list) > PAGE else None,
        "before": before,
        "gaps": any(batch.left_out_before for batch in shown),
    }


def _lines(query: Query, batch_list: list[LoggedBatch]) -> list[BatchLine]:
    rows_by_batch = reads.rows_of(query, batch_list)
    return [
        BatchLine(
            batch=batch,
            rows=batch.records
            if rows_by_batch.get(batch.number) is None
            else rows_by_batch[batch.number],
            counted=rows_by_batch.get(batch.number) is None and batch.records is not None,
            repeated=UNCOUNTED
            if batch.number in rows_by_batch and rows_by_batch[batch.number] is None
            else "",
            ends=ends_of(batch),
        )
        for batch in batch_list
    ]


def ends_of(batch: LoggedBatch) -> tuple[tuple[str, str], ...]:
    """Describe how far each source of a batch has been read."""
    return tuple((source, _end(offset)) for source, offset in batch.sources.items())


def _end(offset: Any) -> str:
    """Describe how far a source has been read."""
    if offset is None:
        return "nothing yet"
    if is_kafka(offset):
        return ", ".join(
            f"{topic}: {len(parts)} partition{'s' if len(parts) != 1 else ''}, "
            f"{sum(parts.values()):,} in total"
            for topic, parts in sorted(offset.items())
        )
    if (entry := log_offset(offset)) is not None:
        return f"log entry {entry:,}"
    return f"{offset:,}" if isinstance(offset, int) else str(offset)


def _between(logs: CheckpointLogs | None, difference: batches.BatchDifference) -> list[LoggedBatch]:
    if logs is None:
        return []
    span = difference.other.number - difference.earlier.number
    page = batches.page(logs, before=difference.other.number + 1, limit=min(span, 500))
    return [batch for batch in page if batch.number > difference.earlier.number]


def _chart(points: tuple[tuple[datetime, int, int], ...], limit: int | None) -> dict[str, Any]:
    """Return the lines of the state chart as SVG points; {} if there are fewer than two points."""
    if len(points) < 2:
        return {}
    width, height = CHART
    start, end = points[0][0], points[-1][0]
    span = max(1.0, (end - start).total_seconds())
    highest = max(max(size for _, _, size in points), 1)
    most = max(max(rows for _, rows, _ in points), 1)

    def line(values: list[tuple[datetime, int]], top: int) -> str:
        return " ".join(
            f"{(at - start).total_seconds() / span * width:.1f},"
            f"{height - value / top * height * 0.92:.1f}"
            for at, value in values
        )

    return {
        "bytes": line([(at, size) for at, _, size in points], highest),
        "rows": line([(at, rows) for at, rows, _ in points], most),
        "highest": highest,
        "most": most,
        "since": start,
        "until": end,
        "share": highest / limit if limit else None,
    }


@fragments("checkpoint", hears=("query", "operation"), own_key_only=("query",))
def draw_batches(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the newest batches in one query's checkpoint."""
    number = whole(key)
    name = names_of([number]).get(number) if number is not None else None
    if number is None or name is None:
        return
    query = living_query(name)
    logs, _ = logs_of(query.checkpoints.filter(retired_at=None).first(), now)
    context = {"query": query, "now": now, **_batches(query, logs, None)}
    yield f"newest-batches-{key}", render_to_string("checkpoints/_batches.html", context)


urlpatterns += [
    path("queries/<query:name>/checkpoint/", batches_tab, name="query-checkpoint"),
    path("queries/<query:name>/checkpoint/state/", state_tab, name="query-checkpoint-state"),
    path("queries/<query:name>/checkpoint/kept/", copies_tab, name="query-checkpoint-kept"),
    path("queries/<query:name>/checkpoint/compare/", compare_page, name="query-checkpoint-compare"),
    path(
        "queries/<query:name>/checkpoint/batches/<int:number>/",
        batch_page,
        name="query-checkpoint-batch",
    ),
]
