"""The API's own description of itself, made once a process."""

import io
import json
from functools import cache
from typing import Any

from django.core.management import call_command


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document; a warning while it is made is an error."""
    return made()


def made(*options: str) -> dict[str, Any]:
    """Make the document anew, with more options of its command."""
    out = io.StringIO()
    call_command("spectacular", *options, "--fail-on-warn", "--format", "openapi-json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found
