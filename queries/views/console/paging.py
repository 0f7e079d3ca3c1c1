"""Long lists: their filters, cursor pages, and live updates.

A list's topic names the list as it is filtered ("failures:query=delays&status=open"), so that
everybody who looks at it in the same way shares one drawing. Rows that stand on the page are
morphed one by one and keep their place. What came since goes into a body of rows of its own
above them ("arrivals"): drawn hidden, and shown by static/js/arrivals.js, which leaves out
what the page has already and waits while somebody points at the list.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import QueryDict

from queries.selectors.paging import rows_after

ROWS = 50
#: Newest rows that are looked through for arrivals; a page holds more.
ARRIVALS = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters of a list, where a page has its request: links keep them."""

    GET: QueryDict


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


def filters(
    given: Mapping[str, str], names: Iterable[str], **choices: Collection[str]
) -> dict[str, str]:
    """Return what an address filters a list by, "" where it does not.

    Of `choices` only the values named count; the first stands for every other text.
    """
    asked = {name: given.get(name, "").strip() for name in (*names, *choices)}
    for name, known in choices.items():
        if asked[name] not in known:
            asked[name] = next(iter(known))
    return asked


def topic(kind: str, asked: Mapping[str, str]) -> str:
    """Return the topic of a list with these filters, empty ones left out."""
    chosen = sorted((name, value) for name, value in asked.items() if value)
    return f"{kind}:{urlencode(chosen)}" if chosen else kind


def asked_of(key: str) -> QueryDict:
    """Return the filters that a topic's key holds."""
    return QueryDict(key.replace("%00", ""))  # no text column holds it, and PostgreSQL says so
