"""Offsets as text: Spark's are JSON of any shape, one a source."""

import json
from typing import Any


def offset_text(offset: Any) -> str:
    """Return an offset as compact JSON; "" where there is none."""
    if offset is None:
        return ""
    if isinstance(offset, str):
        return offset
    return json.dumps(offset, separators=(", ", ": "), ensure_ascii=False)
