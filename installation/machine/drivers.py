"""Find and end this host's drivers, when the whole system is started or stopped."""

import time
from collections.abc import Callable
from datetime import datetime

from django.conf import settings

from queries.domain.states import OPEN_DRIVER_STATES, Reason
from queries.launchers.configured import launcher
from queries.models.drivers import Driver
from queries.services.supervision import adoption

_LOOK_EVERY_S = 0.25  # files and /proc; several processes may exit, so there is no single event


def living() -> list[tuple[str, int]]:
    """Return (application, epoch) of every live driver."""
    return launcher().living()


def without_files() -> list[str]:
    """Return "flights (epoch 7)" for each live driver whose folder is gone."""
    return adoption.without_files(living(), launcher=launcher())


def wait_until_ended(
    limit_s: float, *, awaited: Callable[[], bool] = lambda: True
) -> list[tuple[str, int]]:
    """Wait until no driver is alive; return those still alive after the limit.

    `awaited` returns whether a process that ends them still exists.
    """
    deadline = time.monotonic() + limit_s
    while (left := living()) and time.monotonic() < deadline and awaited():
        time.sleep(_LOOK_EVERY_S)
    return left


def end(*, now: datetime, limit_s: float) -> int:
    """End this host's drivers without supervision; return how many had to be killed.

    First, the rows record that the end is intended, so that the next start does not count it as a
    failure. Then each driver's Python gets SIGTERM; drivers that outlive the limit are killed.
    """
    local = Driver.objects.filter(
        host=settings.HEADGATE_HOST, state__in=sorted(OPEN_DRIVER_STATES), end_wanted=""
    )
    local.update(end_wanted=Reason.SHUTDOWN, end_wanted_at=now)
    return end_without_rows(limit_s=limit_s)


def end_without_rows(*, limit_s: float) -> int:
    """End this host's drivers by their files alone; return how many had to be killed."""
    launcher().end_probes()  # their results would be discarded anyway
    for application, epoch in living():
        launcher().terminate(application, epoch)
    left = wait_until_ended(limit_s)
    for application, epoch in left:
        launcher().kill(application, epoch, Reason.SHUTDOWN)
    wait_until_ended(10)  # lets their shims record the exits
    return len(left)
