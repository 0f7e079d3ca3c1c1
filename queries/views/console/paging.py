"""Pages of long lists by cursor: rows that arrive meanwhile shift nothing."""

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from queries.selectors.paging import rows_after

ROWS = 50


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a list, and the cursor of those after them ("" at the end)."""

    rows: list[Any]
    next: str
    first: bool  # nothing stands before these rows


def page_of(rows: QuerySet[Any], *, by: str, cursor: str = "", size: int = ROWS) -> Page:
    """Return the rows after `cursor`, newest first by the column `by`, then by primary key.

    A cursor that cannot be read starts from the beginning.
    """
    after = cursor.replace("\x00", "").split("~") if cursor else None
    try:
        ordered = rows_after(rows, by, "pk", after=after)
    except (ValueError, ValidationError):
        ordered, after = rows_after(rows, by, "pk", after=None), None
    found = list(ordered[: size + 1])
    more = f"{getattr(found[size - 1], by)}~{found[size - 1].pk}" if len(found) > size else ""
    return Page(rows=found[:size], next=more, first=after is None)
