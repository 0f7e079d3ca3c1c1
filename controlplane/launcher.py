"""The launcher that this installation's settings name, whatever its kind.

`queries.launchers.configured` gives it its type; `listeners`, which may not know `queries`,
asks it for what drivers have spooled.
"""

from functools import cache
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string


@cache
def launcher() -> Any:
    """Return this process's launcher, of the kind that HEADGATE_LAUNCHER names."""
    return import_string(settings.LAUNCHERS[settings.LAUNCHER])()
