"""The launcher that this installation's settings name.

`queries.launchers.configured` adds its type; `listeners`, which may not import `queries`, reads
through it what drivers have spooled.
"""

from functools import cache
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string


@cache
def launcher() -> Any:
    """Return this process's launcher, of the kind that HEADGATE_LAUNCHER names."""
    return import_string(settings.LAUNCHERS[settings.LAUNCHER])()
