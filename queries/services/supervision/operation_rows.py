"""What every verb does: follow its act as an Operation, and have the application looked at."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F

from controlplane.nudge import reconcile_soon
from queries.domain.states import Verb
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.history import Operation


def new_operation(
    verb: Verb,
    application: Application,
    query: Query | None,
    generation: int,
    actor: str,
    now: datetime,
    parent: Operation | None = None,
) -> Operation:
    """Insert the operation that ends when `generation` is reached, or its time is over."""
    return Operation.objects.create(
        verb=verb,
        application=application,
        query=query,
        generation=generation,
        actor=actor,
        parent=parent,
        created_at=now,
        deadline=now + timedelta(seconds=settings.OPERATION_DEADLINE_S),
    )


def renew_application(application: Application) -> None:
    """Have the application's driver replaced by a fresh one on its newest revision."""
    application.generation += 1
    application.target_revision = application.revisions.order_by("-number").first()
    application.save(update_fields=["generation", "target_revision"])


def wake(application_id: int, now: datetime) -> None:
    """Have the application looked at now: by a nudge, and by the sweep should that be lost."""
    # The version moves too: a look that began before this act loses its claim, and with it
    # the chance to overwrite the wake-up with what it decided from older rows.
    Application.objects.filter(pk=application_id).update(
        reconcile_after=now, version=F("version") + 1
    )
    reconcile_soon(application_id)
