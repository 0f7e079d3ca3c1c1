"""The API's own description of itself, made once a process."""

import io
import json
from functools import cache
from typing import Any

from django.core.management import call_command


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document; a warning while it is made is an error."""
    out = io.StringIO()
    call_command(
        "spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", stdout=out
    )
    found: dict[str, Any] = json.loads(out.getvalue())
    return found
