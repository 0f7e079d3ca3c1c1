"""Stop and resume a host; the desired states of its queries stay, other hosts go on."""

from datetime import datetime

from django.conf import settings
from django.db.models import F

from controlplane.nudge import reconcile_soon
from queries.models.applications import Application
from queries.models.hosts import Host
from queries.selectors.hosts import at_work


def request_shutdown(*, now: datetime) -> None:
    """End every driver of this host without changing the desired state of any query."""
    Host.objects.get_or_create(name=settings.HEADGATE_HOST)
    Host.objects.filter(name=settings.HEADGATE_HOST, stopping_since=None).update(stopping_since=now)
    _wake_all(now)
    for pk in at_work().values_list("pk", flat=True):
        reconcile_soon(pk)


def resume(*, now: datetime) -> None:
    """Let supervision start the queries again that are to run, after `request_shutdown`."""
    Host.objects.filter(name=settings.HEADGATE_HOST).update(stopping_since=None)
    _wake_all(now)


def _wake_all(now: datetime) -> None:
    found = list(at_work().values_list("pk", flat=True))
    Application.objects.filter(pk__in=found).update(reconcile_after=now, version=F("version") + 1)
