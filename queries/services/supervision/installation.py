"""Stop and resume the whole installation; the desired states of its queries stay."""

from datetime import datetime

from django.db.models import F

from controlplane.nudge import reconcile_soon
from queries.models.applications import Application
from queries.models.installation import Installation


def request_shutdown(*, now: datetime) -> None:
    """End every driver of the installation without changing the desired state of any query."""
    Installation.get()
    Installation.objects.filter(pk=1, stopping_since=None).update(stopping_since=now)
    _wake_all(now)
    for pk in Application.objects.filter(archived_at=None).values_list("pk", flat=True):
        reconcile_soon(pk)


def resume(*, now: datetime) -> None:
    """Let supervision start the queries again that are to run, after `request_shutdown`."""
    Installation.get()
    Installation.objects.filter(pk=1).update(stopping_since=None)
    _wake_all(now)


def _wake_all(now: datetime) -> None:
    living = Application.objects.filter(archived_at=None)
    living.update(reconcile_after=now, version=F("version") + 1)
