"""Pages that request preflights and state inspections, and show their results."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.errors import HeadgateError, Missing
from queries.domain.readings import counted
from queries.domain.sparks import spark_of
from queries.domain.states import OperationOutcome, Verb
from queries.launchers.configured import launcher
from queries.models.history import Operation
from queries.roles import DEFINE, OPERATE
from queries.selectors.definitions import definitions
from queries.selectors.supervision import history
from queries.services.checkpoints.switching import current
from queries.services.probes import inspections
from queries.services.probes.preflight import begin_preflight
from queries.services.probes.probe_steps import MOST_ROWS, ROWS, SHOWN_FOR
from queries.views.checkpoints.checkpoint import cost_of
from queries.views.console.errors import refused
from queries.views.console.fragments import whole
from queries.views.console.shell import actor_and_now, needs
from queries.views.supervision.operations import CANCEL_LEAVES, RESULTS


@needs(OPERATE, "POST")
def try_revision(request: HttpRequest, name: str) -> HttpResponseBase:
    """Try the newest revision on a copy of the checkpoint."""
    try:
        operation = begin_preflight(
            query=definitions.query(name), spec=None, **actor_and_now(request)
        )
    except HeadgateError as error:
        return refused(request, error, reverse("query-definition", args=[name]))
    return redirect("operation", operation.uuid)


@needs(DEFINE, "GET", "POST")
def new_xray(request: HttpRequest, name: str) -> HttpResponseBase:
    """Ask which state to read; read it on POST."""
    query = definitions.query(name)
    form = request.POST if request.method == "POST" else request.GET
    context: dict[str, Any] = {"query": query, "given": form, "most": MOST_ROWS}
    context["cost"] = cost_of(current(query))
    if request.method == "GET":
        return render(request, "probes/new_xray.html", context)
    try:
        operation = inspections.begin_xray(
            query=query,
            **actor_and_now(request),
            operator=_number(form, "operator", 0),
            rows=_number(form, "rows", ROWS),
            side=form.get("side", ""),
            store=form.get("store") or "default",
            variable=form.get("variable", ""),
            contains=form.get("contains", "").strip(),
            snapshot=_number(form, "snapshot", 0) or None,
        )
    except HeadgateError as error:
        context["problem"] = str(error)
        return render(request, "probes/new_xray.html", context, status=422)
    return redirect("operation", operation.uuid)


@needs(DEFINE)
def xray_rows(request: HttpRequest, name: str, uuid: UUID) -> HttpResponseBase:
    """Show the results of a state inspection, including rows with personal data."""
    operation = history.operation(uuid)
    if operation.query is None or operation.query.name != name or operation.verb != Verb.XRAY:
        raise Missing(f"{name} has no state inspection {uuid}.")
    state_rows = inspections.rows_of(operation, launcher=launcher(), now=timezone.now())
    context = {
        "operation": operation,
        "query": operation.query,
        "seen": state_rows,
        "largest": _rows(state_rows["largest"], "key") if state_rows else [],
        "sample": _rows(state_rows["sample"], "key", "value") if state_rows else [],
        "until": operation.ended_at + SHOWN_FOR if operation.ended_at else None,
    }
    return render(request, "probes/xray.html", context)


@needs(DEFINE, "POST")
def new_records(request: HttpRequest, name: str) -> HttpResponseBase:
    """Reread the records of a batch."""
    query = definitions.query(name)
    batch = whole(request.POST.get("batch"))
    operation = inspections.begin_records(
        query=query, batch=-1 if batch is None else batch, **actor_and_now(request)
    )
    return redirect("operation", operation.uuid)


@needs(DEFINE)
def batch_records(request: HttpRequest, name: str, uuid: UUID) -> HttpResponseBase:
    """Show the records that were found, including personal data."""
    operation = history.operation(uuid)
    if operation.query is None or operation.query.name != name or operation.verb != Verb.RECORDS:
        raise Missing(f"{name} has no records {uuid}.")
    records = inspections.records_of(operation, launcher=launcher(), now=timezone.now())
    context = {
        "operation": operation,
        "query": operation.query,
        "batch": operation.arguments["batch"],
        "seen": records,
        "sources": [
            {**source, "records": _rows(source["records"], "text")} for source in records["sources"]
        ]
        if records
        else [],
        "hot": _hot(records.get("hot")) if records else None,
        "until": operation.ended_at + SHOWN_FOR if operation.ended_at else None,
    }
    return render(request, "probes/records.html", context)


def _hot(hot_keys: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the most frequent keys with their shares, and where they were counted."""
    if not hot_keys:
        return None
    total = hot_keys["rows"]
    extent = (
        "of the whole batch" if hot_keys["part"] >= 1 else f"of a sample of {counted(total, 'row')}"
    )
    keys = [
        {**row, "share": f"{row['rows'] / max(total, 1):.0%}"}
        for row in _rows(hot_keys["keys"], "text")
    ]
    return {"problem": hot_keys["problem"], "said": extent, "keys": keys}


def _number(form: Mapping[str, str], name: str, default: int) -> int:
    number = whole(form.get(name))
    return default if number is None else number


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return a JSON object's members as strings; a truncated object is returned unchanged."""
    try:
        value = json.loads(text)
    except ValueError:
        return [("", text)]
    if not isinstance(value, dict):
        return [("", text)]
    return [
        (name, member if isinstance(member, str) else json.dumps(member, ensure_ascii=False))
        for name, member in value.items()
    ]


def _rows(rows: list[dict[str, Any]], *texts: str) -> list[dict[str, Any]]:
    """Return the rows with some of their strings as pairs."""
    return [{**row, **{name: _pairs(row[name]) for name in texts}} for row in rows]


# --- on the operation's page ----------------------------------------------------------


def _preflight(operation: Operation, now: datetime) -> dict[str, Any]:
    """Return the context that a preflight's page needs in addition to its steps."""
    arguments = operation.arguments
    number = arguments.get("revision")
    assert operation.query is not None, "a preflight is of a query"
    newest = operation.query.application.revisions.order_by("-number")[0]
    tried_spark = (operation.result.get("preflight") or {}).get("spark")
    tried = f"revision {number}" if number else "an unsaved definition"
    return {
        "arguments": [
            ("definition", tried),
            *([("Spark", tried_spark["to"])] if tried_spark else []),
        ],
        "judged": operation.result.get("preflight"),
        "compared_with": operation.result.get("compared_with"),
        "saved_as": number,
        "newest_application": newest.number,
        "offer_spark": "change"
        if tried_spark and spark_of(newest.spec) != tried_spark["to"]
        else "",
    }


def _xray(operation: Operation, now: datetime) -> dict[str, Any]:
    shown_until = operation.ended_at + SHOWN_FOR if operation.ended_at else None
    done = operation.outcome == OperationOutcome.DONE
    most = max(
        (partition["rows"] for partition in operation.result.get("partitions", ())), default=0
    )
    return {
        "rows_are_there": done and shown_until is not None and now < shown_until,
        "shown_until": shown_until,
        "most": most,
    }


def _records(operation: Operation, now: datetime) -> dict[str, Any]:
    shown_until = operation.ended_at + SHOWN_FOR if operation.ended_at else None
    done = operation.outcome == OperationOutcome.DONE
    return {
        "arguments": [("batch", str(operation.arguments["batch"]))],
        "rows_are_there": done and shown_until is not None and now < shown_until,
        "shown_until": shown_until,
    }


RESULTS[Verb.PREFLIGHT] = _preflight
RESULTS[Verb.XRAY] = _xray
RESULTS[Verb.RECORDS] = _records
_ENDS = (
    "Its Spark process is stopped, and its copy of the checkpoint is deleted.",
    "Nothing else changes.",
)
CANCEL_LEAVES[Verb.PREFLIGHT] = CANCEL_LEAVES[Verb.XRAY] = _ENDS
CANCEL_LEAVES[Verb.RECORDS] = ("Its Spark process is stopped.", "Nothing else changes.")

urlpatterns = [
    path("queries/<query:name>/preflight/", try_revision, name="query-preflight"),
    path("queries/<query:name>/records/", new_records, name="query-records"),
    path("queries/<query:name>/records/<uuid:uuid>/", batch_records, name="query-batch-records"),
    path("queries/<query:name>/x-ray/", new_xray, name="query-x-ray"),
    path("queries/<query:name>/x-ray/<uuid:uuid>/", xray_rows, name="query-x-ray-rows"),
]
