"""The launcher selected by this installation's settings."""

from controlplane import hosts
from queries.launchers.base import Launcher


def launcher() -> Launcher:
    """Return this process's launcher."""
    configured_launcher: Launcher = hosts.launcher()
    return configured_launcher
