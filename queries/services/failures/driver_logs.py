"""Read the texts of a driver: the only way in for them, with their secrets masked.

A driver masks by value whatever it writes itself. Spark and users' code can write anything into
its log, and a status may come from an older release; so everything is masked again before it is
stored, sent or shown.
"""

from dataclasses import replace
from typing import Any

from django.conf import settings

from queries.domain.errors import NotAllowed
from queries.domain.probes.questions import ProbeResult, read_result
from queries.domain.protocol import DRIVER_LOG, Status
from queries.domain.states import DriverKind
from queries.domain.supervision.observation import Sighting
from queries.launchers.base import Launcher
from queries.models.drivers import Driver
from queries.models.failures import Failure
from queries.secret_references import References
from queries.services.local_references import local_references

#: Lines shown at most; the launcher returns at most 256 KiB.
MOST_LINES = 5000


class LogElsewhere(NotAllowed):
    """The driver's log is on another host."""

    code = "on-another-host"

    def __init__(self, driver: Driver) -> None:
        super().__init__(
            f"The log of driver {driver.epoch} is on host {driver.host}.",
            way_out=f"Open Headgate on that host, or read {driver.directory}/{DRIVER_LOG} there.",
        )


def read_log(driver: Driver, *specs: Any, launcher: Launcher, lines: int = 200) -> str:
    """Return the end of a driver's or a probe's log, at most 5,000 lines; "" where there is none.

    Raises `LogElsewhere` where it is on the host that the driver ran on.
    The secrets that its definitions (of a probe: `specs`) name are looked up on this host and
    masked by value, everything else that looks like one by its form.
    """
    if driver.host != settings.HEADGATE_HOST:
        raise LogElsewhere(driver)
    wanted = max(1, min(lines, MOST_LINES))
    text = launcher.log_tail(
        driver.application.name, driver.epoch, probe=driver.kind == DriverKind.PROBE, lines=wanted
    )
    return secrets_of(driver, *specs).mask(text)


def without_secrets(sighting: Sighting, driver: Driver) -> Sighting:
    """Return what was seen of a driver with the texts in its status masked."""
    status = sighting.status
    if status is None or not _says_something(status):
        return sighting
    masked = Status.loads(status.dumps(secrets_of(driver).mask_within))
    return replace(sighting, status=masked)


def _says_something(status: Status) -> bool:
    """Return whether a status contains texts of Spark or of users' code; few do."""
    runs = any(run.error or run.warnings for run in status.runs)
    return runs or status.error is not None or any(one.reason for one in status.executors)


def probe_answer(driver: Driver, *specs: Any, launcher: Launcher) -> ProbeResult | None:
    """Return what a probe has found so far, None for nothing; `specs` are what it was to try.

    Raises ValueError (`Unreadable`, or bytes that are not text) where the answer is incomplete.
    """
    text = launcher.probe_result(driver.application.name, driver.epoch)
    if not text:
        return None
    answer = read_result(text)
    return ProbeResult.loads(answer.dumps(secrets_of(driver, *specs).mask_within))


def mask_failure(failure: Failure) -> Failure:
    """Mask a stored failure's texts in memory: earlier releases stored them masked by form only."""
    masked = secrets_of(failure.driver).mask
    for name in ("root_cause", "message", "log_tail"):
        setattr(failure, name, masked(getattr(failure, name)))
    failure.group.title = masked(failure.group.title)
    return failure


def secrets_of(driver: Driver, *specs: Any) -> References:
    """Return the secrets that a driver and its queries were given, as known on this host."""
    found = local_references()
    found.learn(driver.application_revision.spec, *specs)
    found.learn(*driver.runs.values_list("revision__spec", flat=True).distinct())
    return found
