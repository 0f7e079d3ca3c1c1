"""Read a checkpoint's logs for any caller, wherever they are.

The files are read if they are on this host; otherwise the newest report of the checkpoint's drivers
is. Further sources belong here, and nowhere else.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from django.conf import settings
from django.db.models import F, Window
from django.db.models.functions import DenseRank

from queries.checkpoints.logs import (
    Logs,
    LogsUnknown,
    NotLocal,
    ReportedLogs,
    reported_logs,
    unknown_because,
)
from queries.domain.checkpoints.ownership import local_path
from queries.domain.definitions.spec import HOLDING_TRIGGERS
from queries.domain.protocol import RunStatus
from queries.domain.triggers.async_progress import tracking
from queries.driver_folder import DriverFolder
from queries.models.drivers import Driver, Run
from queries.selectors.hosts import logs_at, way_to

#: Newest drivers of a checkpoint whose report is looked for: the newest may not have written one.
_DRIVERS = 3


class Reporters:
    """The newest drivers of checkpoints that are not local: one of them has reported the logs.

    The first call queries the database, once for all checkpoints.
    """

    def __init__(self, locations: Iterable[str]) -> None:
        self._locations = {location for location in locations if local_path(location) is None}
        self._ways: dict[str, str] = {}

    def of(self, location: str) -> list[Driver]:
        """Return a checkpoint's drivers, newest first."""
        return self._drivers_by_location.get(location, [])

    def way_to(self, host: str) -> str:
        """Return the sentence that explains how to reach files on another host."""
        if host not in self._ways:
            self._ways[host] = way_to(host)
        return self._ways[host]

    @cached_property
    def _drivers_by_location(self) -> dict[str, list[Driver]]:
        if not self._locations:
            return {}
        by_epoch = Window(
            DenseRank(),
            partition_by=F("checkpoint__location"),
            order_by=F("driver__epoch").desc(),
        )
        runs = Run.objects.filter(checkpoint__location__in=self._locations)
        newest = runs.annotate(place=by_epoch).filter(place__lte=_DRIVERS).order_by("place")
        pairs = list(newest.values_list("checkpoint__location", "driver", "place").distinct())
        drivers = Driver.objects.in_bulk({driver for _, driver, _ in pairs})
        drivers_by_location: dict[str, list[Driver]] = defaultdict(list)
        for location, driver, _ in pairs:
            drivers_by_location[location].append(drivers[driver])
        return drivers_by_location


def available_logs(
    location: str, *, host: str | None = None, reporters: Reporters | None = None
) -> Logs:
    """Return the known part of a checkpoint's logs; raise `NotLocal`, with the reason, if none.

    `host` is that of the query's application, and `reporters` know the checkpoint's drivers; if
    None, they are looked up. `unknown_because` turns the error into the sentence for an operator.
    """
    if local_path(location) is not None:
        return logs_at(location, host=host)
    reporters = reporters or Reporters([location])
    for driver in reporters.of(location):
        if driver.host != settings.HEADGATE_HOST:
            raise LogsUnknown(
                f"{location} is not on a local file system, and its driver's report on it is on "
                f"host {driver.host}. {reporters.way_to(driver.host)}"
            )
        if (reported_logs := _reported(location, driver)) is not None:
            return reported_logs
    raise LogsUnknown(
        f"{location} is not on a local file system, and only its driver can read it. No driver has "
        "reported its logs yet; start the query to get a report."
    )


def _reported(location: str, driver: Driver) -> ReportedLogs | None:
    return reported_logs(DriverFolder.of(Path(driver.directory)).own, location, driver.pk)


def logs_unknown(
    location: str, *, host: str | None = None, reporters: Reporters | None = None
) -> str:
    """Return the sentence why a checkpoint's logs are unknown; "" if they are known."""
    try:
        available_logs(location, host=host, reporters=reporters)
    except NotLocal as error:
        return unknown_because(error)
    return ""


def in_flight_at_death(run: Run, status: RunStatus | None = None) -> int | None:
    """Return a dead driver's batch in flight; None if there was none.

    `status` is the driver's newest report; if None, the run's row is used. Raises `NotLocal` or
    `UnreadableLog`, with the reason, if the batch cannot be determined.
    """
    if run.driver.host != settings.HEADGATE_HOST:
        raise LogsUnknown(f"the driver's files are on host {run.driver.host}.")
    trigger = str(run.revision.spec.get("trigger", {}).get("kind", ""))
    if trigger in HOLDING_TRIGGERS or tracking(run.revision.spec) is not None:
        raise LogsUnknown("with this trigger, the checkpoint's logs do not contain every batch.")
    logs = available_logs(run.checkpoint.location, host=run.driver.host)
    return logs.in_flight_at_end(status.last_batch if status else run.last_batch)


def unknown_in_flight_reason(run: Run) -> str:
    """Explain why a run's activity at its driver's death is unknown."""
    try:
        in_flight_at_death(run)
    except Exception as error:  # the page shows the death in any case
        return unknown_because(error)
    return "Unknown, because the checkpoint's logs could not be read when the driver died."
