"""The launcher selected by this installation's settings."""

from controlplane import hosts
from queries.launchers.base import Launcher


def launcher() -> Launcher:
    """Return this process's launcher."""
    configured: Launcher = hosts.launcher()
    return configured
