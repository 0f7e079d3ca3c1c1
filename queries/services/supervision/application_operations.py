"""The operator's verbs on a whole application: its driver, and all of its queries."""

from datetime import datetime

from django.db import transaction

from queries.domain.access.acts import Act
from queries.domain.errors import NotAllowed
from queries.domain.states import (
    OPEN_DRIVER_STATES,
    GroupStatus,
    OperationOutcome,
    Reason,
    StopMode,
    Verb,
)
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.failures import FailureGroup
from queries.models.history import Operation
from queries.services.access.audit_trail import record_act
from queries.services.changes import record
from queries.services.secrets.roots import take_everything
from queries.services.supervision.operation_rows import follow
from queries.services.supervision.operations import request_stop


def request_application_restart(
    *, application: Application, actor: str, now: datetime
) -> Operation:
    """Replace the application's driver by a fresh one on its newest revision, pools and code."""
    with transaction.atomic():
        application = Application.objects.select_for_update().get(pk=application.pk)
        joined = Operation.objects.filter(
            application=application,
            query=None,
            verb=Verb.RESTART,
            outcome=OperationOutcome.OPEN,
            deadline__gt=now,
        ).first()
        if joined is not None:
            return joined
        application.renew()
        return follow(
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
    """Stop each of the application's queries."""
    living = Query.objects.filter(application=application, archived_at=None)
    with transaction.atomic():
        return [request_stop(query=query, mode=mode, actor=actor, now=now) for query in living]


def archive_application(*, application: Application, actor: str, now: datetime) -> None:
    """Delete an application without living queries; raises `NotAllowed` naming those it has."""
    with transaction.atomic():
        application = Application.objects.select_for_update().get(pk=application.pk)
        names = list(application.queries.filter(archived_at=None).values_list("name", flat=True))
        if names:
            raise NotAllowed(
                f"{application.name} still contains {', '.join(names)}.",
                way_out="Delete those queries first.",
            )
        if application.drivers.filter(state__in=sorted(OPEN_DRIVER_STATES)).exists():
            raise NotAllowed(
                f"The driver of {application.name} has not ended yet.",
                way_out="Try again in a moment.",
            )
        take_everything(application.name, actor=actor, now=now)
        Application.objects.filter(pk=application.pk, archived_at=None).update(archived_at=now)
        FailureGroup.objects.filter(application=application, status=GroupStatus.OPEN).update(
            status=GroupStatus.RESOLVED, resolved_at=now, resolved_by=actor
        )
        about = {"application": application, "actor": actor}
        record("definition", "", "DELETED", Reason.ARCHIVED, now=now, **about)
        said = {"of": "application", "after": "DELETED"}
        record_act(Act.DEFINITION, actor=actor, now=now, subject=application.name, **said)
