"""The operator's verbs. Each owns its transaction, and pages and API call the same one."""

from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from controlplane.nudge import changed, reconcile_soon
from queries.domain import transitions
from queries.domain.errors import Conflict, NotAllowed
from queries.domain.states import (
    OPEN_DRIVER_STATES,
    Desired,
    GroupStatus,
    OperationOutcome,
    Phase,
    Reason,
    RunOutcome,
    StopMode,
    Verb,
)
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.models.failures import FailureGroup
from queries.models.history import Operation, Transition
from queries.models.installation import Installation

#: How often a verb reads the row anew when somebody else changed it in between.
ATTEMPTS = 5

_REASONS = {
    Verb.START: Reason.ASKED_START,
    Verb.STOP: Reason.ASKED_STOP,
    Verb.RESTART: Reason.ASKED_RESTART,
}


def request_start(*, query: Query, actor: str, now: datetime) -> Operation:
    """Want the query RUNNING on its newest revision.

    A start already satisfied or under way returns that operation; on BROKEN, FAILED or
    BACKOFF it clears the counters and goes now. Raises `NotAllowed` for an archived query.
    """
    return _ask(query, transitions.start, Verb.START, actor, now)


def request_stop(*, query: Query, mode: StopMode, actor: str, now: datetime) -> Operation:
    """Want the query STOPPED, after the batch in flight (graceful) or at once."""
    return _ask(query, lambda asked: transitions.stop(asked, mode), Verb.STOP, actor, now)


def request_restart(*, query: Query, actor: str, now: datetime) -> Operation:
    """Stop the query gracefully and start it on its newest revision; joins an open restart.

    Where the application holds this query only, the restart is a fresh driver.
    """
    return _ask(query, transitions.restart, Verb.RESTART, actor, now)


def request_application_restart(
    *, application: Application, actor: str, now: datetime
) -> Operation:
    """Replace the application's driver by a fresh one on its newest revision, pools and code."""
    with transaction.atomic():
        application = Application.objects.select_for_update().get(pk=application.pk)
        joined = Operation.objects.filter(
            application=application, query=None, verb=Verb.RESTART, outcome=OperationOutcome.OPEN
        ).first()
        if joined is not None:
            return joined
        _bump_application(application)
        operation = _operation(Verb.RESTART, application, None, application.generation, actor, now)
        Transition.objects.create(
            at=now,
            application=application,
            subject="desired",
            before="",
            after="RESTARTED",
            reason=Reason.ASKED_RESTART,
            actor=actor,
            operation=operation,
        )
        _wake(application.pk, now)
    return operation


def request_application_stop(
    *, application: Application, mode: StopMode, actor: str, now: datetime
) -> list[Operation]:
    """Stop each of the application's queries."""
    living = Query.objects.filter(application=application, archived_at=None)
    with transaction.atomic():
        return [request_stop(query=query, mode=mode, actor=actor, now=now) for query in living]


def archive_query(*, query: Query, actor: str, now: datetime) -> None:
    """Delete a stopped query: free its name and location, keep history and checkpoint files.

    Raises `NotAllowed` unless desired is STOPPED and no run is open.
    """
    with transaction.atomic():
        query = Query.objects.select_for_update().select_related("application").get(pk=query.pk)
        transitions.archive(_asked(query))
        generation = query.generation
        updated = Query.objects.filter(
            pk=query.pk, generation=generation, desired=Desired.STOPPED, archived_at=None
        ).update(archived_at=now, generation=generation + 1)
        if not updated:
            raise Conflict(f"{query.name} has just been changed.", way_out="Look again.")
        Checkpoint.objects.filter(query=query, retired_at=None).update(retired_at=now)
        _record(query, "definition", "", "DELETED", Reason.ARCHIVED, actor, now, None)
        application = query.application
        if application.own and not application.queries.filter(archived_at=None).exists():
            Application.objects.filter(pk=application.pk).update(archived_at=now)
        _wake(application.pk, now)
        changed(f"query:{query.pk}")


def archive_application(*, application: Application, actor: str, now: datetime) -> None:
    """Delete an application without living queries; raises `NotAllowed` naming those it has."""
    with transaction.atomic():
        application = Application.objects.select_for_update().get(pk=application.pk)
        names = list(application.queries.filter(archived_at=None).values_list("name", flat=True))
        if names:
            raise NotAllowed(
                f"{application.name} still holds {', '.join(names)}.",
                way_out="Delete those queries first.",
            )
        if application.drivers.filter(state__in=sorted(OPEN_DRIVER_STATES)).exists():
            raise NotAllowed(
                f"{application.name}'s driver is still leaving.", way_out="Try again in a moment."
            )
        Application.objects.filter(pk=application.pk, archived_at=None).update(archived_at=now)
        Transition.objects.create(
            at=now,
            application=application,
            subject="definition",
            before="",
            after="DELETED",
            reason=Reason.ARCHIVED,
            actor=actor,
        )


def confirm_takeover(*, query: Query, actor: str, now: datetime) -> Operation:
    """Take over a checkpoint that another installation's owner file claims, and start."""
    with transaction.atomic():
        Checkpoint.objects.filter(query=query, retired_at=None).update(takeover_at=now)
        return request_start(query=query, actor=actor, now=now)


def resolve_group(*, group: FailureGroup, actor: str, now: datetime) -> None:
    """Mark a failure group as dealt with; its next failure reopens it."""
    _mark(group, GroupStatus.RESOLVED, actor, now, resolved_at=now, resolved_by=actor)


def reopen_group(*, group: FailureGroup, actor: str, now: datetime) -> None:
    """Mark a failure group as not dealt with after all."""
    _mark(group, GroupStatus.OPEN, actor, now, resolved_at=None, resolved_by="")


def request_shutdown(*, now: datetime) -> None:
    """End every driver of the installation without changing what is wanted of any query."""
    Installation.get()
    Installation.objects.filter(pk=1, stopping_since=None).update(stopping_since=now)
    Application.objects.filter(archived_at=None).update(reconcile_after=now)
    for pk in Application.objects.filter(archived_at=None).values_list("pk", flat=True):
        reconcile_soon(pk)


def resume(*, now: datetime) -> None:
    """Let supervision start what is wanted again, after `request_shutdown`."""
    Installation.get()
    Installation.objects.filter(pk=1).update(stopping_since=None)
    Application.objects.filter(archived_at=None).update(reconcile_after=now)


def _ask(
    query: Query,
    verb: Callable[[transitions.Asked], transitions.Change | None],
    name: Verb,
    actor: str,
    now: datetime,
) -> Operation:
    for _ in range(ATTEMPTS):
        with transaction.atomic():
            row = Query.objects.select_for_update().select_related("application").get(pk=query.pk)
            change = verb(_asked(row))
            if change is None:
                return _joined(row, name, actor, now)
            operation = _apply(row, change, actor, now)
            if operation is not None:
                return operation
    raise Conflict(f"{query.name} is being changed by others.", way_out="Try again in a moment.")


def _apply(row: Query, change: transitions.Change, actor: str, now: datetime) -> Operation | None:
    """Write the change by compare-and-set; None means that somebody else won."""
    before = row.desired
    fields: dict[str, object] = {
        "desired": change.desired,
        "stop_mode": change.stop_mode,
        "stop_deadline": now + timedelta(seconds=settings.STOP_DEADLINE_S),
        "generation": row.generation + 1,
    }
    if change.pin:
        fields["target_revision"] = row.revisions.order_by("-number").first()
    updated = Query.objects.filter(pk=row.pk, generation=row.generation, archived_at=None).update(
        **fields
    )
    if not updated:
        return None
    if change.pin:
        _pin_application(row, change.verb)
    Operation.objects.filter(query=row, outcome=OperationOutcome.OPEN).update(
        outcome=OperationOutcome.SUPERSEDED, ended_at=now, detail=f"{change.verb} by {actor}"
    )
    operation = _operation(change.verb, row.application, row, row.generation + 1, actor, now)
    reason = _REASONS[change.verb]
    _record(row, "desired", before, change.desired, reason, actor, now, operation)
    _wake(row.application_id, now)
    changed(f"query:{row.pk}")
    return operation


def _pin_application(row: Query, verb: Verb) -> None:
    """Let the next driver take the newest revision; replace a driver that is this query's alone."""
    application = row.application
    alone = not application.queries.filter(archived_at=None).exclude(pk=row.pk).exists()
    has_driver = application.drivers.filter(state__in=sorted(OPEN_DRIVER_STATES)).exists()
    if verb is Verb.RESTART and alone and has_driver:
        _bump_application(application)
    elif alone or not has_driver:
        newest = application.revisions.order_by("-number").first()
        Application.objects.filter(pk=application.pk).update(target_revision=newest)


def _bump_application(application: Application) -> None:
    application.generation += 1
    application.target_revision = application.revisions.order_by("-number").first()
    application.save(update_fields=["generation", "target_revision"])


def _joined(row: Query, name: Verb, actor: str, now: datetime) -> Operation:
    """Return the operation that already does what was asked; one that is done where none is."""
    verbs = [Verb.STOP] if name is Verb.STOP else [Verb.START, Verb.RESTART]
    found = Operation.objects.filter(
        query=row, verb__in=verbs, generation__lte=row.generation
    ).order_by("-generation", "-pk")
    newest = found.first()
    if newest is not None and newest.outcome in {OperationOutcome.OPEN, OperationOutcome.DONE}:
        return newest
    operation = _operation(name, row.application, row, row.generation, actor, now)
    if row.reached_generation >= row.generation:
        operation.outcome, operation.ended_at = OperationOutcome.DONE, now
        operation.save(update_fields=["outcome", "ended_at"])
    return operation


def _operation(
    verb: Verb,
    application: Application,
    query: Query | None,
    generation: int,
    actor: str,
    now: datetime,
) -> Operation:
    return Operation.objects.create(
        verb=verb,
        application=application,
        query=query,
        generation=generation,
        actor=actor,
        created_at=now,
        deadline=now + timedelta(seconds=settings.OPERATION_DEADLINE_S),
    )


def _asked(row: Query) -> transitions.Asked:
    return transitions.Asked(
        name=row.name,
        desired=Desired(row.desired),
        phase=Phase(row.phase),
        stop_mode=StopMode(row.stop_mode),
        archived=row.archived_at is not None,
        has_run=Run.objects.filter(query=row, outcome=RunOutcome.OPEN).exists(),
        open_restart=Operation.objects.filter(
            query=row, verb=Verb.RESTART, outcome=OperationOutcome.OPEN
        ).exists(),
    )


def _record(
    row: Query,
    subject: str,
    before: str,
    after: str,
    reason: Reason,
    actor: str,
    now: datetime,
    operation: Operation | None,
) -> None:
    Transition.objects.create(
        at=now,
        application=row.application,
        query=row,
        subject=subject,
        before=before,
        after=after,
        reason=reason,
        actor=actor,
        operation=operation,
    )


def _mark(
    group: FailureGroup, status: GroupStatus, actor: str, now: datetime, **fields: object
) -> None:
    with transaction.atomic():
        updated = (
            FailureGroup.objects.filter(pk=group.pk)
            .exclude(status=status)
            .update(status=status, **fields)
        )
        if not updated:
            return
        before = GroupStatus.OPEN if status is GroupStatus.RESOLVED else GroupStatus.RESOLVED
        Transition.objects.create(
            at=now,
            application_id=group.application_id,
            query_id=group.query_id,
            subject="group",
            before=before,
            after=status,
            reason=Reason.NONE,
            detail=group.title,
            actor=actor,
        )
        changed(f"group:{group.pk}")


def _wake(application_id: int, now: datetime) -> None:
    """Have the application looked at now: by a nudge, and by the sweep should that be lost."""
    Application.objects.filter(pk=application_id).update(reconcile_after=now)
    reconcile_soon(application_id)
