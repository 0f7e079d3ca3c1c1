"""The operator's verbs on an entire application: its driver and all its queries."""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from controlplane.nudge import changed
from queries.domain.access import Act
from queries.domain.errors import NotAllowed
from queries.domain.reasons import Because, Detail
from queries.domain.states import (
    FAILED_PHASES,
    OPEN_DRIVER_STATES,
    STOPPED_PHASES,
    Desired,
    GroupStatus,
    OperationOutcome,
    Phase,
    Reason,
    StopMode,
    Verb,
)
from queries.domain.supervision import phases
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.models.history import FailureGroup, Operation
from queries.selectors.hosts import away
from queries.services.access.audit import record_act
from queries.services.changes import record
from queries.services.scripts import take_answer
from queries.services.secrets import take_everything
from queries.services.supervision.operation_rows import (
    create_operation,
    forbid_after_commit_point,
    join_or_create,
)
from queries.services.supervision.operations import archive_query, request_stop
from queries.services.supervision.start_checks import refuse_unproven


def request_application_restart(
    *, application: Application, actor: str, now: datetime, of_deploy: bool = False
) -> Operation:
    """Replace the application's driver with one on its newest revision, pools and code.

    Joins an open restart, unless a revision was added after that was requested. Raises `Unproven`
    if a query that would run must pass a preflight first; a deploy has its own preflights.
    """
    if Script.objects.filter(application=application).exists():
        return request_script_restart(application=application, actor=actor, now=now)
    with transaction.atomic():
        application = Application.objects.select_for_update().get(pk=application.pk)
        open_restart = Operation.objects.filter(
            application=application,
            query=None,
            verb=Verb.RESTART,
            outcome=OperationOutcome.OPEN,
            deadline__gt=now,
        ).first()
        newest = application.revisions.order_by("-number").values_list("pk", flat=True).first()
        if open_restart is not None and application.target_revision_id == newest:
            return open_restart
        running = application.queries.filter(archived_at=None, desired=Desired.RUNNING)
        for query in () if of_deploy else running.order_by("name"):
            refuse_unproven(query)
        application.renew()
        return create_operation(
            Verb.RESTART,
            application,
            None,
            generation=application.generation,
            before="",
            after="RESTARTED",
            actor=actor,
            now=now,
        )


def request_application_stop(
    *, application: Application, mode: StopMode, actor: str, now: datetime
) -> list[Operation]:
    """Stop each of the application's queries, or the script that starts them."""
    if Script.objects.filter(application=application).exists():
        return [request_script_stop(application=application, mode=mode, actor=actor, now=now)]
    living = Query.objects.filter(application=application, archived_at=None)
    with transaction.atomic():
        return [request_stop(query=query, mode=mode, actor=actor, now=now) for query in living]


def archive_application(*, application: Application, actor: str, now: datetime) -> None:
    """Delete an application that has no queries left; else raise `NotAllowed`, naming them.

    Queries started by its script are deleted with it, once the script has ended.
    """
    with transaction.atomic():
        application = Application.objects.select_for_update().get(pk=application.pk)
        _archive_discovered(application, actor, now)
        names = list(application.queries.filter(archived_at=None).values_list("name", flat=True))
        if names:
            raise NotAllowed(
                f"{application.name} still contains {', '.join(names)}.",
                way_out="Delete those queries first.",
            )
        if application.drivers.filter(state__in=sorted(OPEN_DRIVER_STATES)).exists():
            silent = away(application)
            raise NotAllowed(
                f"The driver of {application.name} has not ended yet.",
                way_out=silent.way_out if silent else "Try again in a moment.",
            )
        take_everything(application.name, actor=actor, now=now)
        Application.objects.filter(pk=application.pk, archived_at=None).update(archived_at=now)
        FailureGroup.objects.filter(application=application, status=GroupStatus.OPEN).update(
            status=GroupStatus.RESOLVED, resolved_at=now, resolved_by=actor
        )
        about = {"application": application, "actor": actor}
        record("definition", "", "DELETED", Reason.ARCHIVED, now=now, **about)
        details = {"of": "application", "after": "DELETED"}
        record_act(Act.DEFINITION, actor=actor, now=now, subject=application.name, **details)


def _archive_discovered(application: Application, actor: str, now: datetime) -> None:
    script = Script.objects.filter(application=application).first()
    if script is None:
        return
    if script.desired != Desired.STOPPED or script.phase not in STOPPED_PHASES:
        silent = away(application)
        raise NotAllowed(
            f"The script of {application.name} has not ended.",
            way_out=silent.way_out if silent else "Stop it first.",
        )
    for query in application.queries.filter(archived_at=None):
        archive_query(query=query, actor=actor, now=now)


# --- scripts --------------------------------------------------------------------------


def request_script_start(
    *, application: Application, actor: str, now: datetime, within: Operation | None = None
) -> Operation:
    """Set the desired state of the script to running, on the newest revision and code.

    If the start is already satisfied or in progress, returns that operation; if the script has
    failed, clears the counters and starts it now. Raises `NotAllowed` for an application without a
    script, and `Conflict` while one of its checkpoints is being switched. `within` is the
    multi-step operation that requests the start.
    """
    with transaction.atomic():
        row, script = _locked_script(application)
        _forbid_after_commit_point(row, within)
        change = phases.start(_transition_input(row, script))
        return _request_script_change(row, script, Verb.START, change, actor, now, within)


def request_script_restart(*, application: Application, actor: str, now: datetime) -> Operation:
    """Run the script in a new driver, on the application's newest revision and code."""
    with transaction.atomic():
        row, script = _locked_script(application)
        _forbid_after_commit_point(row, None)
        change = phases.restart(_transition_input(row, script))
        return _request_script_change(row, script, Verb.RESTART, change, actor, now, None)


def request_script_stop(
    *,
    application: Application,
    mode: StopMode,
    actor: str,
    now: datetime,
    within: Operation | None = None,
) -> Operation:
    """Tell the script to stop: after its queries' batches in flight, or everything immediately."""
    with transaction.atomic():
        row, script = _locked_script(application)
        change = phases.stop(_transition_input(row, script), mode)
        return _request_script_change(row, script, Verb.STOP, change, actor, now, within)


def answer_script(
    *, application: Application, identity: str, same_as: str, actor: str, now: datetime
) -> None:
    """Answer a script's pending question; if the script should run, start it."""
    with transaction.atomic():
        row, script = _locked_script(application)
        take_answer(row, script, identity=identity, same_as=same_as, actor=actor, now=now)
        if script.desired == Desired.RUNNING and script.phase in FAILED_PHASES:
            request_script_start(application=row, actor=actor, now=now)


def _locked_script(application: Application) -> tuple[Application, Script]:
    row = Application.objects.select_for_update().get(pk=application.pk)
    script = Script.objects.select_for_update().filter(application=row).first()
    if row.archived_at is not None:
        raise NotAllowed(f"{row.name} has been deleted.", way_out="Define it again.")
    if script is None:
        raise NotAllowed(
            f"{row.name} does not run a script; its queries are defined in Headgate.",
            way_out="Start its queries; each has its own desired state.",
        )
    return row, script


def _transition_input(row: Application, script: Script) -> phases.TransitionInput:
    return phases.TransitionInput(
        name=row.name,
        desired=Desired(script.desired),
        phase=Phase(script.phase),
        stop_mode=StopMode(script.stop_mode),
        archived=row.archived_at is not None,
        has_run=False,  # its phase shows whether its driver is still ending
        open_restart=False,  # each restart is a new driver, on the then current code
    )


def _forbid_after_commit_point(row: Application, within: Operation | None) -> None:
    query_operations = Operation.objects.filter(application=row, query__isnull=False)
    forbid_after_commit_point(query_operations, f"a query of {row.name}", within)


def _request_script_change(
    row: Application,
    script: Script,
    verb: Verb,
    change: phases.DesiredStateChange | None,
    actor: str,
    now: datetime,
    within: Operation | None,
) -> Operation:
    """Write the change and follow it; without one, return the operation that already does it."""
    own = Operation.objects.filter(application=row, query=None)
    if change is None:
        return join_or_create(own, verb, row, None, actor=actor, now=now)
    fields: dict[str, Any] = {"desired": change.desired, "stop_mode": change.stop_mode}
    if change.desired is Desired.RUNNING:  # its driver repeats any question that is still open
        fields |= {"question": {}}
        row.renew()
    else:
        fields |= {"stop_deadline": now + timedelta(seconds=settings.STOP_DEADLINE_S)}
        row.generation += 1
        row.save(update_fields=["generation"])
    Script.objects.filter(pk=script.pk).update(**fields)
    own.filter(outcome=OperationOutcome.OPEN).update(
        outcome=OperationOutcome.SUPERSEDED,
        ended_at=now,
        detail=Because(Detail.SUPERSEDED_BY, {"verb": verb, "actor": actor}),
    )
    changed(f"application:{row.pk}")
    return create_operation(
        verb,
        row,
        None,
        generation=row.generation,
        before=script.desired,
        after=change.desired,
        actor=actor,
        now=now,
        parent=within,
    )
