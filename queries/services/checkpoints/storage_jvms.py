"""Reach checkpoints and tables that are not on a local disk, through one storage JVM per
application.

A storage JVM is launched like a probe, with its own row, so it counts in the host's memory and
starts. It exits when it is not used; `note_ended` closes its row.
"""

import logging
import sys
import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import transaction

from headgate_ground.tool_process import ToolFailed
from listeners.loops.backlogs import loop_errors
from queries.domain.definitions.allowed_paths import AllowedPaths
from queries.domain.definitions.code import handed_to_storage
from queries.domain.definitions.locations import local_path
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.reasons import phrase
from queries.domain.sparks import Spark
from queries.domain.states import OPEN_DRIVER_STATES, DriverKind, DriverState, Reason
from queries.domain.supervision.observation import PASSED, Liveness
from queries.domain.tables.places import TablePlace
from queries.jvm.compiled import COMPILING, begin, existing, is_compiling, missing
from queries.launchers.base import Launcher, LaunchRefused
from queries.launchers.configured import launcher as configured
from queries.models.applications import Application
from queries.models.drivers import Driver, Installation
from queries.selectors.definitions.definitions import conf_of_connectors
from queries.selectors.spark_folders import jars_of
from queries.selectors.supervision.observation import busy_beside_a_start, slots
from queries.services.changes import update_changed
from queries.services.failures import read_log
from queries.services.local_roots import allowed_paths, follow
from queries.services.supervision import decision_rows
from queries.services.supervision.assignments import driver_spec, spark_folder
from queries.storage.checkpoint_process import CheckpointProcess
from queries.storage.hadoop import HadoopStorage, LocalFiles, StorageFailed
from queries.storage.table_logs import Files

logger = logging.getLogger(__name__)
_loop = loop_errors("storage", logger)

#: Seconds of disuse after which a storage JVM may be ended for another application's.
SPARE_AFTER_S = 30.0
#: Time between its row and its folder, or until its shim has locked that: it may take 120 s.
LAUNCHED_WITHIN = timedelta(seconds=180)


class NoStorage(Exception):
    """The storage cannot be reached now; the message names the condition to wait for."""


def storage_of(application: Application, *, launcher: Launcher, now: datetime) -> HadoopStorage:
    """Return the storage of an application's class path, configuration, secrets and isolation.

    If its JVM does not run, it is launched, and `NoStorage` is raised until it listens. Raises
    `LaunchRefused` if it cannot be launched.
    """
    row = _open_row(application)
    if row is not None:
        sighting = launcher.sight(application.name, row.epoch, probe=True, identity=row.identity)
        update_changed(row, dict(sighting.process))
        if _is_over(row, sighting.liveness, now):
            log_tail = read_log(row, launcher=launcher, lines=3)
            began = row.state == DriverState.STARTING
            _end(row, now)
            if began:
                raise LaunchRefused(
                    f"The storage JVM of {application.name} ended at once: {log_tail}"
                )
            row = None
    if row is None:
        row = _launch(application, launcher=launcher, now=now)
    if not launcher.storage_listens(application.name, row.epoch):
        raise NoStorage("The storage JVM is starting")
    launcher.note_storage_use(application.name, row.epoch)
    if row.state == DriverState.STARTING:
        update_changed(row, {"state": DriverState.LIVE, "state_since": now})
    spec = ApplicationSpec.model_validate(row.application_revision.spec)
    return HadoopStorage(
        partial(launcher.connect_storage, application.name, row.epoch),
        withheld=handed_to_storage(spec.conf, spec.env).withheld,
    )


def stages() -> Path:
    """Return the folder in which copies are prepared; no driver sees it."""
    return Path(settings.DRIVERS_DIR) / "probes"


def work_folder() -> Path:
    """Return a new name for a folder in which a copy is prepared."""
    return stages() / f"stage-{uuid.uuid4().hex}"


def note_ended(*, launcher: Launcher, now: datetime) -> None:
    """Close the rows of this host's storage JVMs that have ended."""
    rows = Driver.objects.filter(
        kind=DriverKind.STORAGE,
        host=settings.HEADGATE_HOST,
        state__in=sorted(OPEN_DRIVER_STATES),
    )
    for row in rows.select_related("application"):
        with _loop.isolate_errors(f"storage JVM {row.epoch} of {row.application.name}"):
            name = row.application.name
            sighting = launcher.sight(name, row.epoch, probe=True, identity=row.identity)
            if _is_over(row, sighting.liveness, now):
                _end(row, now)


def _is_over(row: Driver, liveness: Liveness, now: datetime) -> bool:
    """Return whether a storage JVM has ended, or its worker died before it was launched."""
    never = liveness is Liveness.ABSENT and now - row.created_at > LAUNCHED_WITHIN
    return never or liveness in PASSED


def _open_row(application: Application) -> Driver | None:
    newest = application.revisions.order_by("-number")[0]
    open_rows = application.drivers.filter(
        kind=DriverKind.STORAGE,
        host=settings.HEADGATE_HOST,
        state__in=sorted(OPEN_DRIVER_STATES),
        application_revision=newest,  # one of an older revision has other settings: let it end
    )
    return open_rows.select_related("application", "application_revision").first()


def _launch(application: Application, *, launcher: Launcher, now: datetime) -> Driver:
    revision = application.revisions.order_by("-number")[0]
    spec = ApplicationSpec.model_validate(revision.spec)
    spark_folder(spec.spark)  # without it, its sentence and not the compiler's
    jar = _our_jar(spec.spark)
    with transaction.atomic():
        Installation.get()
        Installation.objects.select_for_update().filter(pk=1).first()
        if (open_row := _open_row(application)) is not None:
            return open_row  # another worker was faster
        _make_room(launcher)
        small = spec.model_copy(update={"memory": "384m"})
        if not slots(small, now=now).has_memory:  # a slot is not waited for: its start is short
            raise NoStorage(f"{phrase(Reason.WAITS_MEMORY)} on the host")
        if busy := busy_beside_a_start(now=now):
            raise NoStorage(f"Waiting because {busy}")
        row = decision_rows.create_driver(
            application, revision, launcher=launcher, now=now, kind=DriverKind.STORAGE
        )
    try:
        spec_ = driver_spec(row)
        handed = handed_to_storage(spec.conf, spec.env)
        launcher.launch_probe(
            replace(
                spec_,
                conf=conf_of_connectors(spec.connectors, spec.spark) | handed.conf,
                env=handed.env,
                jars=tuple(dict.fromkeys((str(jar), *spec_.jars))),
                listeners=(),
                redis_url="",
                stream="",
                event_settings={},
                probe=True,
                storage_idle_s=settings.STORAGE_IDLE_S,
            ),
            "{}",
        )
    except LaunchRefused as error:
        _end(row, now)
        if error.passing:
            raise NoStorage(str(error)) from error
        raise
    return row


def _our_jar(spark: Spark) -> Path:
    """Return the jar of our Java classes for a version; if it is missing, begin to compile it.

    Raises `NoStorage` while it is compiled, and `LaunchRefused` if that has just failed.
    """
    classes = settings.JARS_DIR, jars_of(spark)
    begin(*classes)
    waits = is_compiling(*classes)  # before the look: it may end meanwhile
    if (jar := existing(*classes)) is not None:
        return jar
    if waits or not (why := missing(*classes)):
        raise NoStorage(f"{phrase(Reason.WAITS_CLASSES)}: {COMPILING}")
    raise LaunchRefused(f"{why}.")


def _make_room(launcher: Launcher) -> None:
    """End the least recently used storage JVM, if this host has reached its limit."""
    rows = Driver.objects.filter(
        kind=DriverKind.STORAGE,
        host=settings.HEADGATE_HOST,
        state__in=sorted(OPEN_DRIVER_STATES),
    ).select_related("application")
    if len(rows) < settings.STORAGE_JVMS:
        return
    unused_s = {row: launcher.storage_unused_s(row.application.name, row.epoch) for row in rows}
    longest = max(unused_s, key=lambda row: unused_s[row])
    if unused_s[longest] < SPARE_AFTER_S:
        raise NoStorage(f"All {settings.STORAGE_JVMS} storage JVMs of the host are in use")
    launcher.end_probe(longest.application.name, longest.epoch)
    raise NoStorage("A storage JVM of another application is ending")


def _end(row: Driver, now: datetime) -> None:
    ended = {"state": DriverState.ENDED, "state_since": now, "ended_at": now, "last_seq": 0}
    Driver.objects.filter(pk=row.pk, state__in=sorted(OPEN_DRIVER_STATES)).update(**ended)


class Unknown(Exception):
    """Nothing is known about a table; the message is a sentence."""


def storage_of_table(
    table: TablePlace,
    application: Application,
    *,
    launcher: Launcher,
    now: datetime,
    roots: AllowedPaths | None = None,
) -> Files:
    """Return the storage that has a table, if that is within the application's allowed paths.

    Raises `Unknown` with the reason if it is not, `NoStorage` while its storage JVM starts, and
    `StorageFailed`.
    """
    insist_allowed(table, application, roots=roots)
    if local_path(table.location) is not None:
        return LocalFiles()
    try:
        return storage_of(application, launcher=launcher, now=now)
    except LaunchRefused as error:
        raise StorageFailed(str(error)) from error


def open_checkpoints() -> CheckpointProcess:
    """Start the process that reads the checkpoints of Delta logs, isolated, as Spark's parser.

    Raises `ToolFailed`.
    """
    try:
        process = configured().start_tool(
            [sys.executable, "-P", "-m", "queries.storage.checkpoint_actions"],
            hidden=[settings.HEADGATE_HOME, settings.SECRETS_DIR],
        )
    except (LaunchRefused, OSError) as error:
        raise ToolFailed(f"{CheckpointProcess.name} cannot be started: {error}") from error
    return CheckpointProcess(process)


def insist_allowed(
    table: TablePlace, application: Application, *, roots: AllowedPaths | None = None
) -> None:
    """Raise `Unknown` if a table's place is unknown, or outside the application's allowed paths."""
    if table.problem:
        raise Unknown(table.problem)
    allowed = roots or allowed_paths(application.name)
    if (refused := allowed.problem("path", table.location, follow)) is not None:
        raise Unknown(f"{table.location} {refused.message} {refused.way_out}")
