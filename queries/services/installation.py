"""Stop and resume the whole installation; what is wanted of its queries stays as it is."""

from datetime import datetime

from controlplane.nudge import reconcile_soon
from queries.models.applications import Application
from queries.models.installation import Installation


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
