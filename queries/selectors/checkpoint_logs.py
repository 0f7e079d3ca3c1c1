"""Read a checkpoint's logs for whoever asks, without regard to where they are.

The files are read if they are on this host; otherwise the newest report of the checkpoint's drivers
is. Further sources belong here, and nowhere else.
"""

from pathlib import Path

from django.conf import settings

from queries.checkpoints.logs import Logs, LogsUnknown, NotLocal, unknown_because
from queries.checkpoints.reported_logs import ReportedLogs, reported_logs
from queries.domain.checkpoints.lock_files import local_path
from queries.domain.definitions.spec import HOLDING_TRIGGERS
from queries.domain.protocol import RunStatus
from queries.domain.triggers.async_progress import tracking
from queries.driver_folder import DriverFolder
from queries.models.drivers import Driver, Run
from queries.selectors.hosts import logs_at, way_to

#: Newest drivers of a checkpoint whose report is looked for: the newest may not have written one.
_DRIVERS = 3


def known_logs(location: str, *, host: str | None = None) -> Logs:
    """Return what is known of a checkpoint's logs; raise `NotLocal` with the reason if nothing is.

    `host` is that of the query's application; if None, it is looked up. `unknown_because` turns the
    error into the sentence for an operator.
    """
    if local_path(location) is not None:
        return logs_at(location, host=host)
    used = Driver.objects.filter(runs__checkpoint__location=location).order_by("-epoch")
    for driver in used.distinct()[:_DRIVERS]:
        if driver.host != settings.HEADGATE_HOST:
            raise LogsUnknown(
                f"{location} is not on a local file system, and its driver's report on it is on "
                f"host {driver.host}. {way_to(driver.host)}"
            )
        if (found := _reported(location, driver)) is not None:
            return found
    raise LogsUnknown(
        f"{location} is not on a local file system, and only its driver can read it. No driver has "
        "reported its logs yet; start the query to get a report."
    )


def _reported(location: str, driver: Driver) -> ReportedLogs | None:
    return reported_logs(DriverFolder.of(Path(driver.directory)).own, location, driver.pk)


def logs_unknown(location: str, *, host: str | None = None, driver: Driver | None = None) -> str:
    """Return the sentence why a checkpoint's logs are unknown; "" if they are known.

    With the query's host, and its live driver if it has one, this asks the database nothing.
    """
    try:
        if local_path(location) is not None or driver is None or not _reported(location, driver):
            known_logs(location, host=host)
    except NotLocal as error:
        return unknown_because(error)
    return ""


def in_flight_at_death(run: Run, status: RunStatus | None = None) -> int | None:
    """Return a dead driver's batch in flight; None if there was none.

    `status` is the driver's newest report; if None, the run's row is used. Raises `NotLocal` or
    `Unreadable`, with the reason, if the batch cannot be determined.
    """
    if run.driver.host != settings.HEADGATE_HOST:
        raise LogsUnknown(f"the driver's files are on host {run.driver.host}.")
    trigger = str(run.revision.spec.get("trigger", {}).get("kind", ""))
    if trigger in HOLDING_TRIGGERS or tracking(run.revision.spec) is not None:
        raise LogsUnknown("with this trigger, the checkpoint's logs do not contain every batch.")
    logs = known_logs(run.checkpoint.location, host=run.driver.host)
    return logs.in_flight_at_end(status.last_batch if status else run.last_batch)


def why_not_known(run: Run) -> str:
    """Return the sentence why it is unknown what a run was doing when its driver died."""
    try:
        in_flight_at_death(run)
    except Exception as error:  # the page shows the death in any case
        return unknown_because(error)
    return "Unknown, because the checkpoint's logs could not be read when the driver died."
