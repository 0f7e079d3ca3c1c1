"""Long lists: their filters, cursor pages, live updates, and numbers from URLs.

A list's topic contains its filters ("failures:query=delays&status=open"), so that all viewers with
the same filters share one rendering. Rows on the page are morphed individually and keep their
place. New rows go into a separate table body above them ("arrivals"). They are rendered hidden, and
shown by static/js/arrivals.js, which omits rows that the page already has and waits while the
pointer is over the list.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import QueryDict

from headgate_ground import tolerant
from queries.selectors.rows import rows_after


def whole(text: str | None) -> int | None:
    """Return an integer of ASCII digits that a database can store; None for any other text."""
    return tolerant.whole((text or "").strip())


ROWS = 50
#: Newest rows that are searched for arrivals; a page holds more rows.
ARRIVALS = 20


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """A list's filters, in place of a page's request: links preserve them."""

    GET: QueryDict


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some rows of a list, and the cursor for the rows after them ("" at the end)."""

    rows: list[Any]
    next: str
    first: bool  # no rows come before these


def page_of(rows: QuerySet[Any], *, by: str, cursor: str = "", size: int = ROWS) -> ListPage:
    """Return the rows after `cursor`, newest first by the column `by`, then by primary key.

    An invalid cursor starts from the beginning.
    """
    after = cursor.replace("\x00", "").split("~") if cursor else None
    try:
        ordered = rows_after(rows, by, "pk", after=after)
    except (ValueError, ValidationError):
        ordered, after = rows_after(rows, by, "pk", after=None), None
    fetched = list(ordered[: size + 1])
    more = f"{getattr(fetched[size - 1], by)}~{fetched[size - 1].pk}" if len(fetched) > size else ""
    return ListPage(rows=fetched[:size], next=more, first=after is None)


def filters(
    params: Mapping[str, str], names: Iterable[str], **choices: Collection[str]
) -> dict[str, str]:
    """Return the list filters in a URL, with "" for those that are missing.

    For `choices`, only the given values are valid; the first one replaces any other text.
    """
    values = {name: params.get(name, "").strip() for name in (*names, *choices)}
    for name, allowed in choices.items():
        if values[name] not in allowed:
            values[name] = next(iter(allowed))
    return values


def topic(kind: str, list_filters: Mapping[str, str]) -> str:
    """Return the topic for a list with these filters, omitting empty ones."""
    chosen = sorted((name, value) for name, value in list_filters.items() if value)
    return f"{kind}:{urlencode(chosen)}" if chosen else kind


def filters_from_key(key: str) -> QueryDict:
    """Return the filters in a topic's key."""
    return QueryDict(key.replace("%00", ""))  # no text column can store it, and PostgreSQL raises
