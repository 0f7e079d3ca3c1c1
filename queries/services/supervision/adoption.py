"""What a worker does when it comes up: find this host's drivers, and raise the epoch after a
restore.

If a driver's row has ended, the driver should be gone. A driver that is still alive (because its
folder was missing when supervision looked for it) would keep streaming, and nothing would stop it.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

import orjson
from django.conf import settings

from headgate_ground.files import read_file
from listeners.loops.backlogs import loop_errors
from queries.domain.checkpoints.ownership import local_path, owner_file
from queries.domain.states import DISPATCHED_KINDS, OPEN_DRIVER_STATES, DriverKind, Reason
from queries.domain.supervision.observation import LIVING
from queries.launchers.base import Launcher
from queries.models.applications import Application
from queries.models.drivers import Driver, Installation

logger = logging.getLogger(__name__)

#: No installation allocates as many: a greater number was not written by Headgate, and would leave
#: too few for later starts.
HIGHEST_EPOCH = 2**53
MOST_OF_OWNER = 10_000  # characters; Headgate writes about 200


def outrun_owner(location: str, reported_epoch: int | None) -> None:
    """Allocate future epochs above the one in a checkpoint's owner file, if that is ours.

    A local file is read here. For any other location, `reported_epoch` is the epoch that the
    refused driver read there; it refuses an owner of another installation for another reason. None
    if a driver of an earlier release did not report it: the next attempts are refused until enough
    epochs have been allocated.
    """
    epoch = reported_epoch if local_path(location) is None else _owners(location)
    if epoch is None:
        return
    if epoch > HIGHEST_EPOCH:
        logger.warning("ignoring epoch %s in the owner file of %s: too high", epoch, location)
        return
    Installation.raise_epoch(epoch)


def _owners(location: str) -> int | None:
    """Return the epoch of the owner of a local checkpoint; None if it is unknown or not ours."""
    path = Path(owner_file(location))
    try:
        owner = orjson.loads(read_file(path, MOST_OF_OWNER, within=path.parent) or "")
        installation, epoch = str(owner["installation"]), int(owner["epoch"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        logger.warning("could not read the owner file of %s: %s", location, error)
        return None
    return epoch if installation == str(Installation.get().uuid) else None


_loop = loop_errors("drivers that were given up", logger)

#: How many of an application's newest drivers on a host declared gone are looked for.
ABANDONED_DRIVERS_LIMIT = 5


def end_strays(*, launcher: Launcher) -> list[tuple[str, int]]:
    """Kill this host's live drivers whose rows have ended; return them.

    A driver without a row is logged but not killed: the database may be an older copy.
    """
    living = launcher.living()  # before the rows: each row is written before its driver starts
    epochs = [epoch for _, epoch in living]
    rows = Driver.objects.filter(kind__in=DISPATCHED_KINDS, epoch__in=epochs)
    columns = ("application__name", "epoch", "host", "state", "end_wanted")
    drivers = {(name, epoch): about for name, epoch, *about in rows.values_list(*columns)}
    strays = []
    for name, epoch in living:
        if (name, epoch) not in drivers:
            logger.warning(
                "driver %s of %s is alive but has no row; `make stop` ends it", epoch, name
            )
            continue
        host, state, end_wanted = drivers[name, epoch]
        abandoned = state not in OPEN_DRIVER_STATES or end_wanted == Reason.HOST_GONE
        if host == settings.HEADGATE_HOST and abandoned:
            logger.warning(
                "driver %s of %s is alive although its row has ended; killing it", epoch, name
            )
            with _loop.isolate_errors(f"driver {epoch} of {name}"):
                launcher.kill(name, epoch, Reason.GIVEN_UP)
                strays.append((name, epoch))
    return strays


def end_given_up(application: Application, *, launcher: Launcher) -> bool:
    """Kill an application's live drivers on this host after the host was declared gone.

    Call this before the application's next driver starts here. Returns whether there were any.
    """
    rows = application.drivers.filter(
        kind=DriverKind.SERVICE, host=settings.HEADGATE_HOST, state_reason=Reason.HOST_GONE
    )
    epochs = [
        row.epoch
        for row in rows[:ABANDONED_DRIVERS_LIMIT]
        if launcher.sight(application.name, row.epoch, identity=row.identity).liveness in LIVING
    ]
    for epoch in epochs:
        logger.warning(
            "driver %s of %s is alive although its host was declared gone; killing it",
            epoch,
            application.name,
        )
        launcher.kill(application.name, epoch, Reason.HOST_GONE)
    return bool(epochs)


def without_files(living: Iterable[tuple[str, int]], *, launcher: Launcher) -> list[str]:
    """Return "flights (epoch 7)" for each of these drivers that runs without its files."""
    return [
        f"{name} (epoch {epoch})"
        for name, epoch in living
        if launcher.sight(name, epoch).without_files
    ]
