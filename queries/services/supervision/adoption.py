"""Find every driver of this host by its processes, and end those that supervision has given up.

A row that has ended says that its driver is gone. Where a driver lives nevertheless (its folder
was away when it was looked for), it would stream on with nobody to stop it.
"""

import logging
from collections.abc import Iterable

from django.conf import settings

from queries.domain.states import OPEN_DRIVER_STATES, DriverKind
from queries.launchers.base import Launcher
from queries.models.drivers import Driver

logger = logging.getLogger(__name__)


def end_strays(*, launcher: Launcher) -> list[tuple[str, int]]:
    """Kill the drivers of this host that live though their rows have ended; return them.

    A driver without a row is named in the log and left alone: the database may be an older copy.
    """
    living = launcher.living()  # before the rows: each row is written before its driver starts
    rows = Driver.objects.filter(kind=DriverKind.SERVICE, epoch__in=[epoch for _, epoch in living])
    states = {
        (name, epoch): (host, state)
        for name, epoch, host, state in rows.values_list(
            "application__name", "epoch", "host", "state"
        )
    }
    strays = []
    for name, epoch in living:
        host, state = states.get((name, epoch), ("", ""))
        if not state:
            logger.warning("driver %s of %s lives and has no row; `make stop` ends it", epoch, name)
        elif host == settings.HEADGATE_HOST and state not in OPEN_DRIVER_STATES:
            logger.warning("driver %s of %s lives though it had ended; killing it", epoch, name)
            launcher.kill(name, epoch)
            strays.append((name, epoch))
    return strays


def without_files(living: Iterable[tuple[str, int]], *, launcher: Launcher) -> list[str]:
    """Return "flights (epoch 7)" for each of these drivers that lives without its files."""
    return [
        f"{name} (epoch {epoch})"
        for name, epoch in living
        if launcher.sight(name, epoch).without_files
    ]
