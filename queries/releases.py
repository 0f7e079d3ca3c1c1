"""Refuse a database from another release if this release cannot migrate it."""

from typing import Any

from django.core.management.base import CommandError
from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models.signals import pre_migrate

#: The second of the migrations that release 0.1.0 squashed into one; see
#: `docs/decisions/0029-upgrades-begin-with-0-1-0.md`.
BEFORE_THE_FIRST_RELEASE = "0002_operations_with_steps"


class TablesRefused(CommandError):
    """This release cannot use the tables; `way_out` is the remedy."""

    def __init__(self, message: str, way_out: str) -> None:
        self.message, self.way_out = message, way_out
        super().__init__(f"{message}\n  {way_out}")


def connect(sender: Any) -> None:
    """Check the tables before any migration."""
    pre_migrate.connect(_judge, sender=sender, dispatch_uid="queries.releases")


def _judge(sender: Any, using: str, **_: Any) -> None:
    """Raise `TablesRefused` if a migration has been applied that this release does not have."""
    applied = MigrationRecorder(connections[using]).applied_migrations()
    unknown = applied.keys() - MigrationLoader(None).disk_migrations.keys()
    names = sorted(name for app, name in unknown if app == sender.label)
    if BEFORE_THE_FIRST_RELEASE in names:
        raise TablesRefused(
            "The database was created before release 0.1.0 and cannot be upgraded.",
            "Export its definitions with the version that created it (`headgate export`), start "
            "with a new HEADGATE_HOME or an empty database, and apply them there (`headgate "
            "apply`).",
        )
    if names:
        raise TablesRefused(
            f"The database was created by a later release: it contains the migration {names[-1]}.",
            "Start that release, or restore a backup from before the upgrade.",
        )
