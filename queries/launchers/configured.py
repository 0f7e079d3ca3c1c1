"""The launcher that this installation's settings name."""

from functools import cache

from django.conf import settings

from queries.launchers.base import Launcher
from queries.launchers.process.launcher import LocalProcessLauncher


@cache
def launcher() -> Launcher:
    """Return this process's launcher."""
    return LocalProcessLauncher(drivers_dir=settings.DRIVERS_DIR, code_dir=settings.CODE_DIR)
