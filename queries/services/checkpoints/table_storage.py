"""Reach the storage that has a table: this host's disk, or the application's storage JVM."""

import sys
from datetime import datetime

from django.conf import settings

from headgate_ground.tool_process import ToolFailed
from queries.domain.definitions.data_roots import DataRoots
from queries.domain.definitions.locations import local_path
from queries.domain.tables.places import TablePlace
from queries.launchers.base import Launcher, LaunchRefused
from queries.launchers.configured import launcher as configured
from queries.models.applications import Application
from queries.services.checkpoints.storage_jvms import storage_of
from queries.services.local_roots import data_roots, follow
from queries.storage.checkpoint_process import CheckpointProcess
from queries.storage.hadoop import StorageFailed
from queries.storage.local_files import LocalFiles
from queries.storage.table_logs import Files


class Unknown(Exception):
    """Nothing is known about a table; the message is a sentence."""


def storage_of_table(
    table: TablePlace,
    application: Application,
    *,
    launcher: Launcher,
    now: datetime,
    roots: DataRoots | None = None,
) -> Files:
    """Return the storage that has a table, if that is within the application's data roots.

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
    """Start the process that reads the checkpoints of Delta logs, within walls, as Spark's parser.

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
    table: TablePlace, application: Application, *, roots: DataRoots | None = None
) -> None:
    """Raise `Unknown` if a table's place is unknown, or outside the application's data roots."""
    if table.problem:
        raise Unknown(table.problem)
    allowed = roots or data_roots(application.name)
    if (refused := allowed.problem("path", table.location, follow)) is not None:
        raise Unknown(f"{table.location} {refused.message} {refused.way_out}")
