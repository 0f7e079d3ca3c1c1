"""The launcher that this installation's settings name."""

from collections.abc import Callable
from functools import cache

from django.conf import settings
from django.utils.module_loading import import_string

from queries.launchers.base import Launcher


@cache
def launcher() -> Launcher:
    """Return this process's launcher, of the kind that HEADGATE_LAUNCHER names."""
    made: Callable[[], Launcher] = import_string(settings.LAUNCHERS[settings.LAUNCHER])
    return made()
