"""Stop and resume a host, or declare it gone.

The desired states of its queries do not change, and other hosts continue.
"""

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F

from controlplane.nudge import changed, reconcile_soon
from queries.domain.checkpoints.lock_files import local_path
from queries.domain.errors import Invalid, NotAllowed, Problem
from queries.domain.states import (
    OPEN_DRIVER_STATES,
    DriverKind,
    OperationOutcome,
    Reason,
    Verb,
)
from queries.models.applications import Application
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver
from queries.models.history import Operation
from queries.models.hosts import Host
from queries.selectors.hosts import another_is_heard_of, at_work, away
from queries.services.changes import record
from queries.services.supervision.operation_rows import new_operation, schedule_reconcile


def request_shutdown(*, now: datetime) -> None:
    """End every driver of this host without changing any query's desired state."""
    Host.objects.get_or_create(name=settings.HEADGATE_HOST)
    Host.objects.filter(name=settings.HEADGATE_HOST, stopping_since=None).update(stopping_since=now)
    _wake_all(now)
    for pk in at_work().values_list("pk", flat=True):
        reconcile_soon(pk)


def resume(*, now: datetime) -> None:
    """After `request_shutdown`, let supervision start the queries that should run."""
    Host.objects.filter(name=settings.HEADGATE_HOST).update(stopping_since=None)
    _wake_all(now)


def _wake_all(now: datetime) -> None:
    application_ids = list(at_work().values_list("pk", flat=True))
    Application.objects.filter(pk__in=application_ids).update(
        reconcile_after=now, version=F("version") + 1
    )


def declare_host_gone(
    *, application: Application, host: str, actor: str, now: datetime
) -> Operation:
    """Declare the application's driver on a silent host dead, on a user's responsibility.

    1. The epochs of its open driver are revoked: reconcile ends the driver as UNKNOWN, with its
       runs. A driver that is still alive reads the revocation in Redis and exits. Without access to
       Redis, it may keep writing until its host's worker is back, which ends it before doing
       anything else.
    2. Checkpoints in local files stay on that host: their queries wait for the host, or are reset.
       If all checkpoints are in shared storage, another host takes over the application.

    Raises `Invalid` if the application is not on `host`. Raises `NotAllowed` if that host has a
    heartbeat, or has not yet been silent for `HOST_GONE_AFTER_S` while another host was seen.
    """
    with transaction.atomic():
        row = Application.objects.select_for_update().get(pk=application.pk)
        driver = row.drivers.filter(
            kind=DriverKind.SERVICE, state__in=sorted(OPEN_DRIVER_STATES)
        ).first()
        _refuse_to_give_up(row, driver, host)
        operation = new_operation(Verb.DECLARE_GONE, row, None, row.generation, actor, now)
        operation.outcome, operation.ended_at = OperationOutcome.DONE, now
        operation.result = _effects_of_declaration(row, driver, host)
        operation.save(update_fields=["outcome", "ended_at", "result"])
        if driver is not None:
            fields = {"end_wanted": Reason.HOST_GONE, "end_wanted_at": now}
            Driver.objects.filter(pk=driver.pk).update(**fields)
            about = {"application": row, "driver": driver, "actor": actor, "operation": operation}
            record("driver", driver.state, driver.state, Reason.HOST_GONE, now=now, **about)
        schedule_reconcile(row.pk, now)
        changed(f"application:{row.pk}")
        return operation


def _refuse_to_give_up(row: Application, driver: Driver | None, host: str) -> None:
    placed = driver.host if driver else row.host
    if not placed or host != placed:
        way_out = f"It is on host {placed}." if placed else "It has not run on any host."
        raise Invalid([Problem("host", host, f"is not the host of {row.name}.", way_out)])
    silent = away(row)
    after = f"It can be declared gone after {settings.HOST_GONE_AFTER_S} s of silence."
    if silent is None:
        raise NotAllowed(f"Host {host} is sending heartbeats.", way_out=after)
    if silent.silent_s < settings.HOST_GONE_AFTER_S:
        raise NotAllowed(f"Host {host} has been silent for {silent.silent_s:.0f} s.", way_out=after)
    if not another_is_heard_of(host):
        raise NotAllowed(
            f"No other host sends heartbeats, so there is no evidence that {host} is gone.",
            way_out="Start a worker on another host first, with its own HEADGATE_HOST.",
        )


def _effects_of_declaration(row: Application, driver: Driver | None, host: str) -> dict[str, Any]:
    """Return the effects of a declaration on an application's driver and checkpoints."""
    checkpoints = Checkpoint.objects.filter(query__application=row, retired_at=None).order_by(
        "location"
    )
    places = list(checkpoints.values_list("query__name", "location"))
    stay = [name for name, location in places if local_path(location) is not None]
    return {
        "host": host,
        "driver": driver.epoch if driver else None,
        "stay": stay,  # with the host, until it is back or they are reset
        "move": [] if stay else [name for name, _ in places],  # another host takes them over
    }
