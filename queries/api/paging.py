"""Lists with cursors: adding or removing rows never shifts a page."""

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from headgate_ground.tolerant import values
from queries.api.errors import invalid
from queries.domain.errors import Invalid
from queries.selectors.paging import rows_after
from queries.selectors.unshown import OF_ALL, called, number, render_error

DEFAULT_LIMIT = 50
LARGEST_LIMIT = 200


def word(name: str, words: Iterable[Any] = (), *, about: str = "", **more: Any) -> OpenApiParameter:
    """Describe a text query parameter; its value is one of `words`, if there are any."""
    choices = [str(choice) for choice in words] or None
    return OpenApiParameter(name, OpenApiTypes.STR, enum=choices, description=about, **more)


def flag(name: str, about: str) -> OpenApiParameter:
    """Describe a boolean query parameter."""
    return OpenApiParameter(name, OpenApiTypes.BOOL, description=about)


def whole(name: str, default: int, *, low: int, high: int, about: str = "") -> OpenApiParameter:
    """Describe an integer query parameter with its bounds."""
    kind = {"type": "integer", "minimum": low, "maximum": high, "default": default}
    return OpenApiParameter(name, kind, description=about)


PAGING = [
    whole("limit", DEFAULT_LIMIT, low=1, high=LARGEST_LIMIT),
    word("cursor", about="The value of `next` on the previous page."),
]

Row = TypeVar("Row")
M = TypeVar("M", bound=Model)
Key = list[Any]


def limit_of(request: Request) -> int:
    """Return the requested page size; raise `Invalid` if it is outside 1 to 200."""
    return whole_number(request, "limit", DEFAULT_LIMIT, low=1, high=LARGEST_LIMIT)


def whole_number(request: Request, name: str, default: int, *, low: int, high: int) -> int:
    """Return an integer query parameter; raise `Invalid` if it is not valid or out of bounds."""
    text = request.query_params.get(name)
    if text is None:
        return default
    number = values.whole(text)
    if number is None or not low <= number <= high:
        raise invalid(name, text, f"is not a whole number from {low} to {high}.")
    return number


def page(
    request: Request,
    fetch: Callable[[Key | None, int], Sequence[Row]],
    key: Callable[[Row], Key],
    body: Callable[[Row], Any],
) -> Response:
    """Return one page, with each row in its body.

    `fetch(after, count)` returns the rows after the key `after` (None: from the start), and
    `key(row)` returns the JSON values that identify a row's position.
    """
    limit = limit_of(request)
    after = _after(request)
    try:
        rows = list(fetch(after, limit + 1))
    except (TypeError, ValueError, IndexError, ValidationError) as error:
        if after is None:
            raise
        raise _no_cursor(request.query_params["cursor"]) from error
    following = None
    if len(rows) > limit:
        rows = rows[:limit]
        following = _next(request, key(rows[-1]))
    return Response(shown(rows, body) | {"next": following})


def shown(rows: Iterable[Row], body: Callable[[Row], Any]) -> dict[str, list[Any]]:
    """Return the rows' bodies, and the rows that cannot be shown, each with the reason."""
    listed: dict[str, list[Any]] = {"results": []}
    for row in rows:
        try:
            listed["results"].append(body(row).data)
        except OF_ALL:
            raise
        except Exception as error:  # top level of the loop: the other rows must still be listed
            what = {"id": number(row), "name": called(row), "detail": render_error(row, error)}
            listed.setdefault("not_shown", []).append(what)
    return listed


def page_of_rows(
    request: Request,
    rows: QuerySet[M],
    body: Callable[[M], Any],
    *by: str,
    descending: bool = True,
) -> Response:
    """Return one page of a query set ordered by the columns `by`, which are unique together."""
    columns = by or ("pk",)

    def fetch(after: Key | None, count: int) -> list[M]:
        return list(rows_after(rows, *columns, after=after, descending=descending)[:count])

    return page(request, fetch, lambda row: [getattr(row, name) for name in columns], body)


def _after(request: Request) -> Key | None:
    text = request.query_params.get("cursor")
    if not text:
        return None
    try:
        key = json.loads(base64.urlsafe_b64decode(text.encode("ascii")))
    except ValueError:
        key = None
    if not isinstance(key, list) or not key or not _plain(key):
        raise _no_cursor(text)
    return key


def _no_cursor(text: str) -> Invalid:
    return invalid("cursor", text, "is not a valid cursor.", "Use the “next” value of a page.")


def _plain(key: list[Any]) -> bool:
    """Return whether a column can be compared with a cursor's values."""
    return all(
        (isinstance(part, str) and "\x00" not in part) or (type(part) is int and abs(part) < 2**63)
        for part in key
    )


def _next(request: Request, key: Key) -> str:
    plain = json.dumps(key, default=str, separators=(",", ":"))
    text = base64.urlsafe_b64encode(plain.encode()).decode()
    params = request.query_params.copy()
    params["cursor"] = text
    return request.build_absolute_uri(f"{request.path}?{params.urlencode()}")
