"""The operator's verbs, shared by pages and API; each owns its transaction."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F

from controlplane.nudge import changed
from queries.domain.access import Act
from queries.domain.errors import Conflict
from queries.domain.reasons import Because, Detail
from queries.domain.states import (
    OPEN_DRIVER_STATES,
    READING_VERBS,
    Desired,
    DriverKind,
    GroupStatus,
    OperationOutcome,
    Phase,
    Reason,
    RunOutcome,
    StopMode,
    Verb,
)
from queries.domain.supervision import phases
from queries.domain.validation.params import accepted, effective
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.models.history import FailureGroup, Operation, Transition
from queries.selectors.hosts import away
from queries.selectors.rows import param_defaults
from queries.services.access.audit import insert_acts, sealed_act
from queries.services.changes import Prepared
from queries.services.scripts import refuse_discovered
from queries.services.secrets import take_everything
from queries.services.supervision.operation_rows import (
    create_operation,
    forbid_after_commit_point,
    join_or_create,
    schedule_reconcile,
)
from queries.services.supervision.start_checks import (
    refuse_start_on_gap,
    refuse_unaccepted,
    refuse_unproven,
)

#: How often a verb reads the row again after a concurrent change.
ATTEMPTS = 5


def request_start(
    *,
    query: Query,
    actor: str,
    now: datetime,
    within: Operation | None = None,
    accept_state_change: bool = False,
    params: Mapping[str, Any] | None = None,
    keep_params: bool = False,
) -> Operation:
    """Set the query to RUNNING on its newest revision.

    If the start is already satisfied or in progress, returns that operation; if the query is
    ON_HOLD, FAILED or in BACKOFF, clears the counters and starts it now. Raises `NotAllowed` for an
    archived query, `Conflict` while an operation with steps is past its point of no return, and
    `StateChanges` if state would silently become wrong, unless `accept_state_change` is set.
    `within` is the operation with steps that requests the start; any other such operation of the
    query is superseded.

    `params` gives values for parameters of the definition; the others, or all if it is None, get
    their defaults. With `keep_params`, and within an operation, the query keeps its values. Raises
    `Invalid` for an unknown name or a value of the wrong type, and `Conflict` if the query is
    already running with other values.
    """
    if params is None and within is None and not keep_params:
        params = {}
    change = phases.start
    return _request_change(
        query, change, Verb.START, actor, now, within, accept_state_change, params
    )


def request_stop(
    *,
    query: Query,
    mode: StopMode,
    actor: str,
    now: datetime,
    within: Operation | None = None,
) -> Operation:
    """Set the query to STOPPED: after the batch in flight (graceful), or immediately."""

    def stop(
        transition_input: phases.TransitionInput,
    ) -> phases.DesiredStateChange | None:
        return phases.stop(transition_input, mode)

    return _request_change(query, stop, Verb.STOP, actor, now, within)


def request_restart(
    *,
    query: Query,
    actor: str,
    now: datetime,
    within: Operation | None = None,
    accept_state_change: bool = False,
    params: Mapping[str, Any] | None = None,
) -> Operation:
    """Stop the query gracefully and start it on its newest revision.

    Joins an open restart, unless a revision was added after that was requested. Raises as
    `request_start` does.

    If the application has only this query, the restart starts a new driver. Without `params`, the
    query keeps the values that it was started with.
    """
    change = phases.restart
    return _request_change(
        query, change, Verb.RESTART, actor, now, within, accept_state_change, params
    )


def request_again(*, query: Query, actor: str, now: datetime) -> Operation:
    """Immediately retry a query that should run but is FAILED, ON_HOLD or in BACKOFF.

    The query stays on the revision that it was started on.
    """
    return _request_change(query, phases.retry, Verb.START, actor, now, None)


def archive_query(*, query: Query, actor: str, now: datetime) -> None:
    """Delete a stopped query: free its name and location, but keep history and checkpoint files.

    Raises `NotAllowed` unless the desired state is STOPPED and no run is open.
    """
    with transaction.atomic():
        query = locked(query)
        phases.archive(_transition_input(query))
        archive_stopped([query], actor=actor, now=now)


def archive_stopped(rows: list[Query], *, actor: str, now: datetime) -> None:
    """Delete stopped queries with their own applications, in the caller's transaction.

    Raises `Conflict` if one has been started or deleted in the meantime.
    """
    ids = [row.pk for row in rows]
    places = sorted({row.application_id for row in rows})
    # In reconcile's lock order.
    list(Application.objects.select_for_update().filter(pk__in=places).order_by("pk"))
    open_runs = Run.objects.filter(query__in=ids, outcome=RunOutcome.OPEN)
    stopped = Query.objects.filter(pk__in=ids, desired=Desired.STOPPED, archived_at=None)
    free = stopped.exclude(pk__in=open_runs.values("query"))
    if free.update(archived_at=now, generation=F("generation") + 1) != len(ids):
        names = ", ".join(row.name for row in rows[:3])
        raise Conflict(f"{names} has just been changed.", way_out="Check it again.")
    Checkpoint.objects.filter(query__in=ids, retired_at=None).update(retired_at=now)
    # They no longer need anyone's attention.
    FailureGroup.objects.filter(query__in=ids, status=GroupStatus.OPEN).update(
        status=GroupStatus.RESOLVED, resolved_at=now, resolved_by=actor
    )
    Operation.objects.filter(query__in=ids, outcome=OperationOutcome.OPEN).update(
        outcome=OperationOutcome.SUPERSEDED,
        ended_at=now,
        detail=Because(Detail.DELETED_BY, {"actor": actor}),
    )
    about = {"subject": "definition", "before": "", "after": "DELETED", "actor": actor, "at": now}
    Transition.objects.bulk_create(
        Transition(application_id=row.application_id, query=row, reason=Reason.ARCHIVED, **about)
        for row in rows
    )
    details: dict[str, Any] = {"of": "query", "after": "DELETED", "actor": actor, "now": now}
    acts = (sealed_act(Act.DEFINITION, subject=row.name, **details) for row in rows)
    insert_acts(Prepared(acts))
    living = Query.objects.filter(application__in=places, archived_at=None)
    alone = Application.objects.filter(pk__in=places, own=True).exclude(
        pk__in=living.values("application")
    )
    for name in alone.values_list("name", flat=True):
        take_everything(name, actor=actor, now=now)
    alone.update(archived_at=now)
    for application_id in places:
        schedule_reconcile(application_id, now)
    changed(*(f"query:{pk}" for pk in ids))


def confirm_takeover(*, query: Query, actor: str, now: datetime) -> Operation:
    """Take over a checkpoint whose owner file names another installation, and start the query."""
    with transaction.atomic():
        Checkpoint.objects.filter(query=query, retired_at=None).update(takeover_at=now)
        return request_start(query=query, actor=actor, now=now)


def _request_change(
    query: Query,
    verb: Callable[[phases.TransitionInput], phases.DesiredStateChange | None],
    name: Verb,
    actor: str,
    now: datetime,
    within: Operation | None,
    accept_state_change: bool = False,
    params: Mapping[str, Any] | None = None,
) -> Operation:
    for _ in range(ATTEMPTS):
        with transaction.atomic():
            row = locked(query)
            refuse_discovered(row)
            own = Operation.objects.filter(query=row)
            forbid_after_commit_point(own, row.name, within)
            requested_params = _requested_params(row, params)
            change = verb(_transition_input(row))
            if change is None:
                _refuse_other_params(row, name, params, requested_params)
                earlier_operations = own.filter(generation__lte=row.generation).order_by(
                    "-generation", "-pk"
                )
                return join_or_create(
                    earlier_operations, name, row.application, row, actor=actor, now=now
                )
            if change.pin and within is None:
                refuse_start_on_gap(row)
                refuse_unproven(row)
                refuse_unaccepted(
                    row, accepted=accept_state_change, actor=actor, params=requested_params
                )
            operation = _apply(row, change, actor, now, within, requested_params)
            if operation is not None:
                return operation
    raise Conflict(
        f"{query.name} is being changed by other requests.", way_out="Try again in a moment."
    )


def _requested_params(row: Query, params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the values that a start or restart sets; None for the defaults."""
    return row.params if params is None else accepted(param_defaults(row), params) or None


def _refuse_other_params(
    row: Query,
    verb: Verb,
    params: Mapping[str, Any] | None,
    requested_params: dict[str, Any] | None,
) -> None:
    """Raise `Conflict` if a start gives values to a query that already runs with others."""
    defaults = param_defaults(row)
    if params and effective(defaults, requested_params) != effective(defaults, row.params):
        raise Conflict(
            f"{row.name} is already being {verb.lower()}ed with other parameters.",
            way_out="Wait until it has ended, or restart it with these parameters.",
        )


def _apply(
    row: Query,
    change: phases.DesiredStateChange,
    actor: str,
    now: datetime,
    within: Operation | None,
    params: Mapping[str, Any] | None,
) -> Operation | None:
    """Write the change by compare-and-set; return None if another change won."""
    fields: dict[str, object] = {
        "desired": change.desired,
        "stop_mode": change.stop_mode,
        "stop_deadline": now + timedelta(seconds=settings.STOP_DEADLINE_S),
        "generation": row.generation + 1,
    }
    if change.pin:
        fields["target_revision"] = row.revisions.order_by("-number").first()
        fields["params"] = params
    updated = Query.objects.filter(pk=row.pk, generation=row.generation, archived_at=None).update(
        **fields
    )
    if not updated:
        return None
    if change.pin:
        _pin_application(row, change.verb)
    others = Operation.objects.filter(query=row, outcome=OperationOutcome.OPEN)
    others.exclude(pk=within.pk if within else 0).exclude(verb__in=READING_VERBS).update(
        outcome=OperationOutcome.SUPERSEDED,
        ended_at=now,
        detail=Because(Detail.SUPERSEDED_BY, {"verb": change.verb, "actor": actor}),
    )
    return create_operation(
        change.verb,
        row.application,
        row,
        generation=row.generation + 1,
        before=row.desired,
        after=change.desired,
        actor=actor,
        now=now,
        parent=within,
    )


def _pin_application(row: Query, verb: Verb) -> None:
    """Pin the newest revision for the next driver; replace a driver that runs only this query."""
    application = row.application
    alone = not application.queries.filter(archived_at=None).exclude(pk=row.pk).exists()
    has_driver = application.drivers.filter(
        kind=DriverKind.SERVICE, state__in=sorted(OPEN_DRIVER_STATES)
    ).exists()
    if verb is Verb.RESTART and alone and has_driver:
        application.renew()
    elif alone or not has_driver:
        newest = application.revisions.order_by("-number").first()
        Application.objects.filter(pk=application.pk).update(target_revision=newest)


def locked(query: Query) -> Query:
    """Return the current row, locked after its application's: the same order as in reconcile."""
    application = Application.objects.select_for_update().get(pk=query.application_id)
    row = Query.objects.select_for_update().get(pk=query.pk)
    row.application = application
    return row


def _is_newest(row: Query, revision_id: int | None) -> bool:
    newest = row.revisions.order_by("-number").values_list("pk", flat=True).first()
    return newest == revision_id


def _transition_input(row: Query) -> phases.TransitionInput:
    silent = away(row.application) if row.phase_reason == Reason.HOST_SILENT else None
    return phases.TransitionInput(
        away=silent.name if silent else "",
        name=row.name,
        desired=Desired(row.desired),
        phase=Phase(row.phase),
        stop_mode=StopMode(row.stop_mode),
        archived=row.archived_at is not None,
        has_run=Run.objects.filter(query=row, outcome=RunOutcome.OPEN).exists(),
        open_restart=_is_newest(row, row.target_revision_id)
        and Operation.objects.filter(
            query=row, verb=Verb.RESTART, outcome=OperationOutcome.OPEN
        ).exists(),
    )
