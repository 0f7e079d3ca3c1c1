"""Lists that follow what happens: rows change in place, and what is new is held apart.

A list's topic names the list as it is filtered ("failures:query=delays&status=open"), so that
everybody who looks at it in the same way shares one drawing. Rows that stand on the page are
morphed one by one and keep their place. What came since goes into a body of rows of its own
above them ("arrivals"): drawn hidden, and shown by static/js/arrivals.js, which leaves out
what the page has already and waits while somebody points at the list.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import QueryDict

#: Newest rows that are looked through for arrivals; a page of a list holds more (`paging.ROWS`).
ARRIVALS = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters of a list, where a page has its request: links keep them."""

    GET: QueryDict


def topic(kind: str, asked: Mapping[str, str]) -> str:
    """Return the topic of a list with these filters, empty ones left out."""
    chosen = sorted((name, value) for name, value in asked.items() if value)
    return f"{kind}:{urlencode(chosen)}" if chosen else kind


def asked_of(key: str) -> QueryDict:
    """Return the filters that a topic's key holds."""
    return QueryDict(key.replace("%00", ""))  # no text column holds it, and PostgreSQL says so
