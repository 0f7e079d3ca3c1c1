"""Pages of long lists by cursor: rows that arrive meanwhile shift nothing."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

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
    after = _read(cursor)
    if after:
        value, pk = after
        rows = rows.filter(Q(**{f"{by}__lt": value}) | Q(**{by: value, "pk__lt": pk}))
    found = list(rows.order_by(f"-{by}", "-pk")[: size + 1])
    more = len(found) > size
    found = found[:size]
    return Page(rows=found, next=_write(found[-1], by) if more else "", first=after is None)


def _write(row: Any, by: str) -> str:
    value = getattr(row, by)
    return f"{value.isoformat() if isinstance(value, datetime) else value}~{row.pk}"


def _read(cursor: str) -> tuple[Any, int] | None:
    text, _, pk = cursor.partition("~")
    try:
        return (int(text) if text.isdigit() else datetime.fromisoformat(text)), int(pk)
    except ValueError:
        return None
