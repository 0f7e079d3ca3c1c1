"""Which applications and drivers need a version of Spark, and which connectors."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection

from listeners.loops.troubles import loop_errors
from queries.domain.sparks import OURS
from queries.domain.states import OPEN_DRIVER_STATES, OperationOutcome
from queries.models.applications import Application
from queries.models.drivers import Driver
from queries.models.history import Operation
from queries.selectors.supervision.drift import newest_application_revisions

_each = loop_errors("connectors", logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class SparkUser:
    """An application by its newest revision, or a driver by the revision that it runs."""

    application: str
    driver: int | None  # its number, also of a preflight or a storage JVM; None: the application
    host: str  # on which the driver runs; "" for an application
    spark: str
    connectors: tuple[str, ...]
    kind: str = "driver"

    def __str__(self) -> str:
        name = f"application {self.application}"
        return name if self.driver is None else f"{self.kind} {self.driver} of {name}"


def spark_users() -> list[SparkUser]:
    """Return the living applications by name, then the open drivers."""
    living = Application.objects.filter(archived_at=None).order_by("name")
    newest = newest_application_revisions(living.values_list("pk", flat=True))
    found = []
    for application in living:
        if (revision := newest.get(application.pk)) is not None:
            with _each.isolate_errors(f"application {application.name}"):
                found.append(_user(application.name, None, "", revision.spec))
    drivers = Driver.objects.filter(state__in=sorted(OPEN_DRIVER_STATES)).order_by("pk")
    for driver in drivers.select_related("application", "application_revision"):
        with _each.isolate_errors(f"driver {driver.pk}"):
            name, spec = driver.application.name, driver.application_revision.spec
            found.append(_user(name, driver.pk, driver.host, spec))
    trials = Operation.objects.filter(
        outcome=OperationOutcome.OPEN, arguments__has_key="application_spec"
    ).order_by("pk")  # preflights and clones with a definition that is not saved
    for trial in trials.select_related("application"):
        with _each.isolate_errors(f"operation {trial.pk}"):
            spec, owner = trial.arguments["application_spec"] or {}, trial.application
            found.append(_user(owner.name if owner else "", trial.pk, "", spec, "operation"))
    return found


def is_set_up() -> bool:
    """Return whether the database has tables; commands also run before the first start."""
    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite" and not Path(name).exists():  # connecting would create it
        return False
    return Application._meta.db_table in connection.introspection.table_names()


def _user(
    application: str, driver: int | None, host: str, spec: dict[str, Any], kind: str = "driver"
) -> SparkUser:
    names = tuple(map(str, spec.get("connectors") or ()))
    return SparkUser(application, driver, host, str(spec.get("spark") or OURS), names, kind)
