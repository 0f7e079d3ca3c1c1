"""Steps shared by every verb: insert an Operation to follow, and trigger reconcile."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, QuerySet

from controlplane.nudge import changed, reconcile_soon
from queries.domain.errors import Conflict, NotAllowed
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import (
    GOOD_OPERATIONS,
    PLAIN_VERBS,
    OperationOutcome,
    Reason,
    Verb,
)
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.selectors.hosts import away
from queries.services.access.rate_limits import record_operation
from queries.services.changes import record

_REASONS = {
    Verb.START: Reason.ASKED_START,
    Verb.STOP: Reason.ASKED_STOP,
    Verb.RESTART: Reason.ASKED_RESTART,
}


def create_operation(
    verb: Verb,
    application: Application,
    query: Query | None,
    *,
    generation: int,
    before: str,
    after: str,
    actor: str,
    now: datetime,
    parent: Operation | None = None,
) -> Operation:
    """Record a request, and trigger reconcile for its application.

    1. Insert an Operation that ends when `generation` is reached or its deadline has passed;
       `query` is None for the whole application.
    2. Insert a Transition of the desired state, from `before` to `after`.
    3. Wake the application, and update open pages.
    """
    operation = new_operation(verb, application, query, generation, actor, now, parent)
    about = {"application": application, "query": query, "actor": actor, "operation": operation}
    record("desired", before, after, _REASONS[verb], now=now, **about)
    schedule_reconcile(application.pk, now)
    if query is not None:
        changed(f"query:{query.pk}")
    return operation


def new_operation(
    verb: Verb,
    application: Application,
    query: Query | None,
    generation: int,
    actor: str,
    now: datetime,
    parent: Operation | None = None,
) -> Operation:
    """Insert the operation that ends when `generation` is reached or its deadline has passed.

    Raises `TooMany` if the user makes requests too often.
    """
    silent = away(application) if verb in PLAIN_VERBS else None
    detail = NOTHING
    if silent is not None:
        about = {"host": silent.name, "since": f"{silent.seen_at:%H:%M:%S}"}
        code = Detail.WORKER_SLOW if silent.alone else Detail.HOST_AWAY
        detail = Because(code, {"verb": verb, **about})
    operation = Operation.objects.create(
        verb=verb,
        detail=detail,
        application=application,
        query=query,
        generation=generation,
        actor=actor,
        parent=parent,
        created_at=now,
        deadline=now + timedelta(seconds=settings.OPERATION_DEADLINE_S),
    )
    record_operation(operation, now=now)
    return operation


def join_or_create(
    operations: QuerySet[Operation],
    verb: Verb,
    application: Application,
    query: Query | None,
    *,
    actor: str,
    now: datetime,
) -> Operation:
    """Return the newest of these operations that serves the request, else a new operation.

    `query` is None if `verb` applies to the whole application.
    """
    verbs = [Verb.STOP] if verb is Verb.STOP else [Verb.START, Verb.RESTART]
    newest = operations.filter(verb__in=verbs).first()
    if newest is not None and newest.outcome == OperationOutcome.OPEN:
        return newest
    _refuse_while_lost(verb, application, query)
    if newest is not None and newest.outcome in GOOD_OPERATIONS:
        return newest
    about = query or application
    operation = new_operation(verb, application, query, about.generation, actor, now)
    if about.reached_generation >= about.generation:
        operation.outcome, operation.ended_at = OperationOutcome.DONE, now
        operation.save(update_fields=["outcome", "ended_at"])
    return operation


def _refuse_while_lost(verb: Verb, application: Application, query: Query | None) -> None:
    """Raise `NotAllowed` if a repeated request would have to wait for a silent host."""
    waits = query or Script.objects.filter(application=application).first()
    silent = away(application)
    if waits is None or silent is None or waits.phase_reason != Reason.HOST_SILENT:
        return
    name = (query or application).name
    raise NotAllowed(
        f"The {verb} of {name} is already requested and waits for host {silent.name}, which "
        f"has not responded since {silent.seen_at:%H:%M:%S} UTC.",
        way_out=silent.way_out,
    )


def forbid_after_commit_point(
    operations: QuerySet[Operation], of: str, within: Operation | None
) -> None:
    """Raise `Conflict` while one of these operations switches a checkpoint.

    `of` describes their subject; `within` is the operation that makes the request, which is never
    rejected.
    """
    open_ones = operations.filter(outcome=OperationOutcome.OPEN, committed=True)
    other = open_ones.exclude(pk=within.pk if within else 0).first()
    if other is not None:
        raise Conflict(
            f"The {other.verb} of {of} is past its point of no return.",
            way_out=f"Wait for operation {other.uuid} to end; this takes seconds.",
        )


def schedule_reconcile(application_id: int, now: datetime) -> None:
    """Have the application reconciled now: by a nudge or, if that is lost, by the sweep."""
    # The version changes too: a reconcile that started before this request loses its claim, so it
    # cannot overwrite the wake-up with a decision based on older rows.
    Application.objects.filter(pk=application_id).update(
        reconcile_after=now, version=F("version") + 1
    )
    reconcile_soon(application_id)
