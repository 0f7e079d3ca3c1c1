"""Detect an implausible watermark, and the column that most likely causes it."""

from collections.abc import Mapping
from typing import Any


def after_9999(spec: Mapping[str, Any]) -> str:
    """Return what a watermark after the year 9999 means for a definition, and how to fix it.

    Spark's JSON and CSV readers interpret an integer in a TIMESTAMP column as seconds.
    """
    sources = spec.get("sources")
    marks = [one.get("watermark") for one in sources or () if isinstance(one, Mapping)]
    columns = [str(mark["column"]) for mark in marks if isinstance(mark, Mapping)]
    named = f"the column {' or '.join(columns)}" if columns else "its event-time column"
    example = columns[0] if len(columns) == 1 else "it"
    return (
        "The watermark is after the year 9999, so all later rows count as late and are "
        f"dropped. The likely cause: {named} holds milliseconds since 1970, and Spark reads "
        "whole numbers in a TIMESTAMP column as seconds. Read it as BIGINT and convert it with "
        f"timestamp_millis({example}). A watermark never goes back: reset the query afterwards."
    )
