"""The launcher configured for this installation.

`queries.launchers.configured` adds its type; `listeners`, which may not import `queries`, reads
drivers' spools through it.
"""

from functools import cache
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string


@cache
def launcher() -> Any:
    """Return this process's launcher, of the kind in HEADGATE_LAUNCHER."""
    return import_string(settings.LAUNCHERS[settings.LAUNCHER])()
