"""The drivers of this host, for starting and stopping the whole system."""

import time
from datetime import datetime

from django.conf import settings

from queries.domain.states import OPEN_DRIVER_STATES, Reason
from queries.launchers.configured import launcher
from queries.models.drivers import Driver
from queries.services.supervision import adoption

_LOOK_EVERY_S = 0.25  # files and /proc; several processes may end, so there is no one event


def living() -> list[tuple[str, int]]:
    """Return (application, epoch) of every driver whose processes are alive."""
    return launcher().living()


def without_files() -> list[str]:
    """Return "flights (epoch 7)" for each living driver whose directory is gone."""
    return adoption.without_files(living(), launcher=launcher())


def keep_streaming() -> str:
    """Return the sentence about drivers that is shown when the rest has ended."""
    count = len(living())
    if not count:
        return "No driver is streaming."
    if count == 1:
        return "1 driver keeps streaming; `make stop` ends it"
    return f"{count} drivers keep streaming; `make stop` ends them"


def wait_until_gone(limit_s: float) -> list[tuple[str, int]]:
    """Wait until no driver is alive; return those that outlive the limit."""
    deadline = time.monotonic() + limit_s
    while (left := living()) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)
    return left


def end(*, now: datetime, limit_s: float) -> int:
    """End this host's drivers without supervision's help; return how many had to be killed.

    The rows first record that the end is intended, so that the next start counts no failure.
    Each driver's Python gets SIGTERM; what outlives the limit is killed.
    """
    here = Driver.objects.filter(
        host=settings.HEADGATE_HOST, state__in=sorted(OPEN_DRIVER_STATES), end_wanted=""
    )
    here.update(end_wanted=Reason.SHUTDOWN, end_wanted_at=now)
    return end_without_rows(limit_s=limit_s)


def end_without_rows(*, limit_s: float) -> int:
    """End this host's drivers by their files alone; return how many had to be killed."""
    launcher().end_probes()  # their results would be discarded anyway
    for application, epoch in living():
        launcher().terminate(application, epoch)
    left = wait_until_gone(limit_s)
    for application, epoch in left:
        launcher().kill(application, epoch)
    wait_until_gone(10)  # for their shims to write how they ended
    return len(left)
