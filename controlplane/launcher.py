"""Return the launcher configured for this installation.

`queries.launchers.configured` adds the type; `listeners`, which is not allowed to import `queries`,
reads drivers' spools through this launcher.
"""

from functools import cache
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string


@cache
def launcher() -> Any:
    """Return this process's launcher, whose kind is in HEADGATE_LAUNCHER."""
    return import_string(settings.LAUNCHERS[settings.LAUNCHER])()
