"""One operation: what was requested and by which user, its steps, and its result.

A verb whose result needs its own display provides `templates/operations/_result_VERB.html` (data
only: it is part of the live fragment) and, for buttons that follow from the result,
`templates/operations/_acts_VERB.html`. Both receive `operation`, `query`, `result`, and whatever
the verb's function in `RESULTS` adds.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from headgate_ground.masking import mask, mask_text
from queries.domain.errors import NotAllowed
from queries.domain.labels import verb_label
from queries.domain.readings import counted
from queries.domain.reasons import NOTHING, Because
from queries.domain.sparks import installable
from queries.domain.states import (
    FAILED_OPERATIONS,
    MANY_VERBS,
    PLAIN_VERBS,
    OperationOutcome,
    Phase,
    Reason,
    StepState,
    Verb,
)
from queries.models.history import Operation
from queries.roles import OPERATE, VIEW
from queries.selectors.query_lines import QueryLine, query_line
from queries.selectors.supervision.history import (
    first_attempt,
    lines_of,
    operation,
    operations,
    transitions,
)
from queries.services.procedures.engine import cancel
from queries.views.console.fragments import Changes, Drawn, fragments
from queries.views.console.shell import actor_and_now, needs, next_address, redirect_with_message
from queries.views.definitions.reviews import readable

#: How long an ended operation is shown.
SHOWN_AFTER_END = timedelta(minutes=2)

_STEPS: dict[str, tuple[str, ...]] = {
    Verb.START: ("Requested", "Waiting", "Launching", "Running"),
    Verb.STOP: ("Requested", "Finishing the batch", "Stopped"),
    Verb.RESTART: ("Requested", "Stopping", "Launching", "Running"),
}
_AT: dict[str, dict[Phase, int]] = {
    Verb.START: {
        Phase.PENDING: 1,
        Phase.BACKOFF: 1,
        Phase.STARTING: 2,
        Phase.RUNNING: 3,
        Phase.COMPLETED: 3,
    },
    Verb.STOP: {Phase.STOPPING: 1, Phase.STOPPED: 2, Phase.COMPLETED: 2},
    Verb.RESTART: {Phase.STOPPING: 1, Phase.PENDING: 2, Phase.STARTING: 2},
}


@dataclass(frozen=True, slots=True)
class StepProgress:
    """One step: done, now, todo or failed."""

    label: str
    state: str


@dataclass(frozen=True, slots=True)
class OperationProgress:
    """An operation with its steps."""

    operation: Operation
    steps: list[StepProgress]
    detail: Because  # what it is waiting for, or why it failed


def way(operation: Operation | None, line: QueryLine, now: datetime) -> OperationProgress | None:
    """Return the newest operation's steps while it is open, and for a while after it has ended."""
    if operation is None or operation.outcome == OperationOutcome.SUPERSEDED:
        return None
    ended = operation.ended_at
    if operation.outcome and (ended is None or now - ended > SHOWN_AFTER_END):
        return None
    if operation.outcome in FAILED_OPERATIONS and _is_past(operation, line):
        return None
    if operation.steps:
        return OperationProgress(
            operation, [_step(step) for step in operation.steps], operation.detail
        )
    if operation.verb not in _STEPS:
        return None
    labels = _STEPS[operation.verb]
    if operation.outcome == OperationOutcome.DONE:
        return OperationProgress(
            operation, [StepProgress(label, "done") for label in labels], NOTHING
        )
    if operation.outcome in FAILED_OPERATIONS:
        return OperationProgress(operation, failed_steps(operation), operation.detail)
    at = _AT[operation.verb].get(line.phase, 0)
    return OperationProgress(
        operation, _steps(labels, at, "now"), operation.detail or line.query.phase_detail
    )


def _is_past(operation: Operation, line: QueryLine) -> bool:
    """Return whether a plain verb's failure is unrelated to the current attempt."""
    if operation.verb not in PLAIN_VERBS or line.run is None or operation.ended_at is None:
        return False
    retried = line.run.cause in {Reason.RETRY_DUE, Reason.PROBE, Reason.DRIVER_DIED}
    later = line.run.created_at > operation.ended_at and not retried
    return later or line.phase is Phase.RUNNING


def failed_steps(operation: Operation) -> list[StepProgress]:
    """Return the steps of a failed plain verb, with the failed one marked."""
    labels = _STEPS[operation.verb]
    if operation.verb == Verb.STOP:
        return _steps(labels, 1, "failed")
    run = first_attempt(operation)
    at = 1 if run is None else 2 if run.started_at is None else 3
    return _steps(labels, at, "failed")


def _steps(labels: tuple[str, ...], at: int, state: str) -> list[StepProgress]:
    return [
        StepProgress(label, "done" if index < at else "todo" if index > at else state)
        for index, label in enumerate(labels)
    ]


def _step(step: dict[str, str]) -> StepProgress:
    """Return a step in a multi-step operation, as written by its procedure."""
    return StepProgress(step["name"], STEP_STATES[StepState(step["state"])])


STEP_STATES = {
    StepState.TODO: "todo",
    StepState.DOING: "now",
    StepState.DONE: "done",
    StepState.FAILED: "failed",
}


Result = Callable[[Operation, datetime], dict[str, Any]]

#: What is needed to display a verb's result besides the operation itself, by verb.
RESULTS: dict[str, Result] = {}

#: The query's condition after cancelling, as sentences, by verb; view modules add their own.
CANCEL_LEAVES: dict[str, tuple[str, ...]] = {}

#: Headings for verbs that do not read well next to the name.
HEADINGS: dict[str, str] = {
    Verb.ASYNC_OFF: "Switch async progress tracking off for {}",
    Verb.GO_ON: "Skip lost data of {}",
    Verb.PREFLIGHT: "Preflight of {}",
    Verb.XRAY: "State inspection of {}",
    Verb.RECORDS: "Records of a batch of {}",
    Verb.SNAPSHOT: "Snapshot of {}",
    Verb.START_MANY: "Start {}",
    Verb.STOP_MANY: "Stop {}",
    Verb.RESTART_MANY: "Restart {}",
    Verb.PRUNE: "Delete {}",
}

CHANGES_SHOWN = 40
#: Maximum for an operation on many queries; REST returns all of them.
LINES_SHOWN = 200


@dataclass(frozen=True, slots=True)
class StepLine:
    """One step as shown on the page."""

    name: str
    state: str  # done | now | todo | failed | left
    at: datetime | None
    detail: str


@needs(VIEW)
def operation_page(request: HttpRequest, uuid: UUID) -> HttpResponseBase:
    """Show one operation: verb, query, actor, steps, outcome, result."""
    row = operation(uuid)
    return render(request, "supervision/operations/operation.html", _context(row, timezone.now()))


@needs(OPERATE, "GET", "POST")
def cancel_page(request: HttpRequest, uuid: UUID) -> HttpResponseBase:
    """Show what cancelling leaves behind; cancel on POST."""
    row = operation(uuid)
    back = next_address(request, reverse("operation", args=[uuid]))
    if request.method == "GET":
        return render(request, "supervision/operations/cancel.html", _cancelling(row, back))
    cancel(row, **actor_and_now(request))
    return redirect_with_message(
        request, "The operation was cancelled and is being cleaned up.", back
    )


def _context(row: Operation, now: datetime) -> dict[str, Any]:
    """Return the context for the page and its live fragment."""
    verb = str(row.verb)
    more = RESULTS[verb](row, now) if verb in RESULTS else {}
    result = mask(row.result)
    return {
        "now": now,
        "operation": row,
        "query": row.query,
        "heading": HEADINGS.get(verb, f"{verb_label(verb)} {{}}").format(_subject(row)),
        "steps": steps_of(row, now),
        "detail": mask_text(row.detail.text),
        "arguments": sorted(mask(row.arguments).items()),
        "result": result,
        "result_text": readable(result) if result else "",
        # {% include %} takes the first of these that exists.
        "result_templates": _templates("result", verb),
        "acts_templates": _templates("acts", verb),
        "failed": row.outcome in FAILED_OPERATIONS,
        "can_cancel": row.cancellable,
        "children": operations().filter(parent=row).order_by("pk"),
        "changes": _changes(row, now),
        **more,
    }


def _subject(row: Operation) -> str:
    if row.verb == Verb.INSTALL:
        arguments = row.arguments
        return installable(str(arguments.get("spark")), str(arguments.get("connector") or ""))
    many = len(row.result.get("queries", ()))
    return row.subject or counted(many, "query,queries")


def _many(row: Operation, now: datetime) -> dict[str, Any]:
    """Return the outcome for each query in an operation on many."""
    lines = lines_of(row)
    counts = Counter(line.outcome for line in lines)
    return {
        "lines": [
            replace(line, detail=mask_text(line.detail), way_out=mask_text(line.way_out))
            for line in lines[:LINES_SHOWN]
        ],
        "lines_left": max(0, len(lines) - LINES_SHOWN),
        "counts": [(outcome, count) for outcome, count in counts.items() if outcome],
        "under_way": counts[OperationOutcome.OPEN],
        "result_templates": ["supervision/operations/_result_many.html"],
        "acts_templates": ["supervision/operations/_acts_many.html"],
    }


RESULTS |= dict.fromkeys(MANY_VERBS, _many)


def _templates(part: str, verb: str) -> list[str]:
    return [f"supervision/operations/_{part}{end}.html" for end in (f"_{verb}", "")]


def steps_of(row: Operation, now: datetime) -> list[StepLine]:
    """Return an operation's steps; those of a plain verb follow its query's phase."""
    if row.steps:
        over = bool(row.outcome)
        return [_operation_step(step, over=over) for step in row.steps]
    plain = row.query is not None and row.verb in PLAIN_VERBS
    if plain and row.outcome in FAILED_OPERATIONS:
        return [StepLine(step.label, _left(step.state), None, "") for step in failed_steps(row)]
    if row.query is None or row.query.archived_at is not None or row.outcome:
        return []
    progress = way(row, query_line(row.query.name, now=now, bars=0), now)
    return (
        [StepLine(step.label, step.state, None, "") for step in progress.steps] if progress else []
    )


def _left(state: str) -> str:
    return "left" if state == "todo" else state


def _operation_step(step: dict[str, Any], *, over: bool) -> StepLine:
    state = STEP_STATES[StepState(step["state"])]
    if over and state in ("now", "todo"):
        state = "left"  # it never finished, and no worker is processing it any more
    at = parse_datetime(step["at"]) if step.get("at") else None
    return StepLine(step["name"], state, at, mask_text(str(step.get("detail") or "")))


def _changes(row: Operation, now: datetime) -> list[Any]:
    """Return how the query (or application) changed while the operation was running."""
    if row.application is None:
        return []
    changes = transitions(query=row.query, application=row.application)
    until = row.ended_at or now
    within = changes.filter(at__gte=row.created_at, at__lte=until)
    return list(within.order_by("at", "pk")[:CHANGES_SHOWN])


def _cancelling(row: Operation, back: str) -> dict[str, Any]:
    if not row.cancellable:
        raise NotAllowed("The operation can no longer be cancelled.", way_out="Check its steps.")
    named = f" of {row.query.name}" if row.query else ""
    return {
        "operation": row,
        "query": row.query,
        "what": f"Cancel “{verb_label(row.verb)}”{named}?",
        "consequences": [
            "The current step is abandoned, and its partial results are cleaned up.",
            *CANCEL_LEAVES.get(str(row.verb), ()),
        ],
        "action": reverse("operation-cancel", args=[row.uuid]),
        "back": back,
    }


@fragments("operation", hears=("operation", "query"), own_key_only=("operation",))
def draw_operation(key: str, changes: Changes, now: datetime) -> Drawn:
    """Render the steps and the result of one operation."""
    try:
        row = operations().filter(uuid=key).first()
    except ValidationError:  # anybody can write a stream's URL
        return
    if row is None or not _concerns(row, changes):
        return
    html = render_to_string("supervision/operations/_operation.html", _context(row, now))
    yield f"operation-{key}", html


def _concerns(row: Operation, changes: Changes) -> bool:
    """Return whether a change may be shown here; changes to other queries' batches may not."""
    if changes is None or f"operation:{row.uuid}" in changes:
        return True
    return row.outcome == OperationOutcome.OPEN and f"query:{row.query_id}" in changes


urlpatterns = [
    path("operations/<uuid:uuid>/", operation_page, name="operation"),
    path("operations/<uuid:uuid>/cancel/", cancel_page, name="operation-cancel"),
]
