"""The launcher selected by this installation's settings."""

from controlplane import launcher as chosen
from queries.launchers.base import Launcher


def launcher() -> Launcher:
    """Return this process's launcher."""
    configured: Launcher = chosen.launcher()
    return configured
