"""The data for a query's charts: its batches and events over a range."""

import csv
import io
import json
from datetime import datetime, timedelta
from typing import Any, assert_never

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from headgate_ground.tolerant.values import at_s
from listeners import selectors as heard
from queries.domain.access.acts import Act
from queries.models.definitions import Query
from queries.roles import VIEW
from queries.selectors.definitions.definitions import query as living_query
from queries.selectors.supervision.chart_marks import ChartMark, MarkKind, Outage, marks, outages
from queries.services.access.audit_trail import record_act
from queries.views.console.guard import actor_and_now, needs

RANGES = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "90d": timedelta(days=90),
}
DEFAULT_RANGE = "15m"


@needs(VIEW)
def series(request: HttpRequest, name: str) -> HttpResponseBase:
    """Return chart columns for a range, or since a given moment, with the events in it.

    `format=csv` gives one line per batch, `format=json` the same as a file.
    """
    now = timezone.now()
    query = living_query(name)
    since, until = span(request, now)
    batch_series = heard.series(query.pk, since=since, until=until or now + timedelta(seconds=5))
    form = request.GET.get("format", "")
    if form in ("csv", "json"):
        record_act(Act.EXPORTED, subject=name, what=f"batches as {form}", **actor_and_now(request))
    if form == "csv":
        return _file(_csv(batch_series), "text/csv", f"{name}.csv")
    end = until or now
    body = {
        "since": since.timestamp(),
        "until": end.timestamp(),
        **columns(batch_series),
        "marks": [_mark(query, mark) for mark in marks(query, since=since, until=end)],
        "outages": [_outage(outage) for outage in outages(query, since=since, until=end)],
    }
    if form == "json":
        return _file(json.dumps(body), "application/json", f"{name}.json")
    return JsonResponse(body)


def span(request: HttpRequest, now: datetime) -> tuple[datetime, datetime | None]:
    """Return the requested range; it has an end only if an absolute range was requested."""
    since = parse_datetime(request.GET.get("since", ""))
    until = parse_datetime(request.GET.get("until", ""))
    since = None if since is None or timezone.is_naive(since) else since
    until = None if until is None or timezone.is_naive(until) else until
    if since is None:
        since = (until or now) - RANGES.get(request.GET.get("range", ""), RANGES[DEFAULT_RANGE])
    if until is not None and until <= since:
        until = None
    return max(since, (until or now) - max(RANGES.values())), until


def _mark(query: Query, mark: ChartMark) -> dict[str, Any]:
    match mark.kind:
        case MarkKind.RUN | MarkKind.DEATH:
            href = reverse("run", args=[int(mark.key)])
        case MarkKind.FAILURE:
            href = reverse("failure", args=[int(mark.key)])
        case MarkKind.REVISION:
            href = f"{reverse('query-definition', args=[query.name])}?revision={mark.key}"
        case MarkKind.OPERATION:
            href = reverse("operation", args=[mark.key])
        case MarkKind.INCIDENT:
            href = reverse("incident", args=[mark.key])
        case never:
            assert_never(never)
    return {"at": mark.at.timestamp(), "kind": mark.kind, "text": mark.text, "href": href}


def _outage(outage: Outage) -> dict[str, Any]:
    until = outage.until.timestamp() if outage.until else None
    return {"since": outage.since.timestamp(), "until": until, "text": outage.text}


def _csv(batch_series: heard.Series) -> str:
    names = sorted(batch_series.columns)
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(["at", "batch", *names])
    for index, at in enumerate(batch_series.at):
        if batch_series.batches[index] is not None:  # an empty row separates two runs on a chart
            moment = at_s(at)
            when = moment.isoformat(timespec="milliseconds") if moment else ""
            values = [batch_series.columns[name][index] for name in names]
            lines.writerow([when, batch_series.batches[index], *values])
    return text.getvalue()


def _file(text: str, content_type: str, name: str) -> HttpResponse:
    answer = HttpResponse(text, content_type=f"{content_type}; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def columns(batch_series: heard.Series) -> dict[str, Any]:
    """Return a series in the charts' format."""
    return {"at": batch_series.at, "columns": batch_series.columns, "batches": batch_series.batches}


urlpatterns = [path("queries/<query:name>/series/", series, name="query-series")]
