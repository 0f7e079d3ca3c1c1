"""The drivers of this host as one who starts and stops the whole system sees them."""

import time
from datetime import datetime

from django.conf import settings

from queries.domain.states import OPEN_DRIVER_STATES, Reason
from queries.domain.supervision.observation import Liveness
from queries.launchers.process.launcher import PROBES, LocalProcessLauncher
from queries.models.drivers import Driver

_LIVING = frozenset({Liveness.SPAWNING, Liveness.ALIVE, Liveness.ORPHANED})
_LOOK_EVERY_S = 0.25  # files and /proc; several processes may end, so there is no one event


def _launcher() -> LocalProcessLauncher:
    return LocalProcessLauncher(settings.DRIVERS_DIR, settings.CODE_DIR)


def living() -> list[tuple[str, int]]:
    """Return (application, epoch) of every driver whose processes really live."""
    launcher = _launcher()
    found = []
    for directory in settings.DRIVERS_DIR.glob("*/*"):
        if not directory.name.isdigit():
            continue
        application, epoch = directory.parent.name, int(directory.name)
        if launcher.sight(application, epoch).liveness in _LIVING:
            found.append((application, epoch))
    return sorted(found)


def keep_streaming() -> str:
    """Return the sentence about drivers that a person reads when the rest has ended."""
    count = len(living())
    if not count:
        return "No driver is streaming."
    if count == 1:
        return "1 driver keeps streaming; `make stop` ends it"
    return f"{count} drivers keep streaming; `make stop` ends them"


def wait_until_gone(limit_s: float) -> list[tuple[str, int]]:
    """Wait until no driver lives; return those that outlive the limit."""
    deadline = time.monotonic() + limit_s
    while (left := living()) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)
    return left


def end(*, now: datetime, limit_s: float) -> int:
    """End every driver without supervision's help; return how many had to be killed.

    The rows say first that the end was wanted, so that the next start counts no failure.
    Each driver's Python is asked to leave; what outlives the limit is killed.
    """
    Driver.objects.filter(state__in=sorted(OPEN_DRIVER_STATES), end_wanted="").update(
        end_wanted=Reason.SHUTDOWN, end_wanted_at=now
    )
    return end_without_rows(limit_s=limit_s)


def end_without_rows(*, limit_s: float) -> int:
    """End every driver by its files alone; return how many had to be killed."""
    launcher = _launcher()
    for directory in settings.DRIVERS_DIR.glob(f"*/{PROBES}/*"):
        # A probe holds nothing that a kill could harm, and its copies are thrown away anyway.
        if directory.name.isdigit():
            launcher.end_probe(directory.parent.parent.name, int(directory.name))
    for application, epoch in living():
        launcher.terminate(application, epoch)
    left = wait_until_gone(limit_s)
    for application, epoch in left:
        launcher.kill(application, epoch)
    wait_until_gone(10)  # for their shims to write how they ended
    return len(left)
