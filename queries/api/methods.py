"""The methods of endpoints, with the same steps from description to response, and paged lists.

A decorated method receives the URL's own parameters by name, and its form's input as `sent`. Its
body renders the returned value; a complete response is sent unchanged.
"""

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from headgate_ground import tolerant
from queries.api.bodies import Body, OperationBody
from queries.api.errors import invalid, refuse_unknown
from queries.api.schema import describe, listed
from queries.domain.errors import Invalid
from queries.models.history import Operation
from queries.models.lock_waits import again_if_busy
from queries.roles import DEFINE, OPERATE, VIEW
from queries.selectors.rows import OF_ALL, called, number, render_error, rows_after

DEFAULT_LIMIT = 50
LARGEST_LIMIT = 200


def word(name: str, words: Iterable[Any] = (), *, about: str = "", **more: Any) -> OpenApiParameter:
    """Describe a text query parameter; its value must be in `words`, if there are any."""
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
    number = tolerant.whole(text)
    if number is None or not low <= number <= high:
        raise invalid(name, text, f"is not a whole number from {low} to {high}.")
    return number


def page(
    request: Request,
    fetch: Callable[[Key | None, int], Sequence[Row]],
    key: Callable[[Row], Key],
    body: Callable[[Row], Any],
) -> Response:
    """Return one page, with each row as its body.

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
    document: dict[str, list[Any]] = {"results": []}
    for row in rows:
        try:
            document["results"].append(body(row).data)
        except OF_ALL:
            raise
        except Exception as error:  # top level of the loop: the other rows must still be listed
            what = {"id": number(row), "name": called(row), "detail": render_error(row, error)}
            document.setdefault("not_shown", []).append(what)
    return document


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


Method = Callable[..., Any]
Sent = dict[str, Any]


class Nothing(Body):
    """No body, or an empty object."""


def accepted(operation: Operation) -> Response:
    """Return 202 with the operation and the URL for following it."""
    location = reverse("api:operation", args=[operation.uuid])
    return Response(OperationBody(operation).data, status=202, headers={"Location": location})


def _method(
    show: Callable[[Any, Any], Any],
    role: str,
    form: Any,
    description: dict[str, Any],
) -> Callable[[Method], Method]:
    """Make a method that rejects query parameters that are not in its description."""
    if form is not None:
        description = {"request": form, **description}
    described = description.get("parameters", ())
    names = [
        parameter.name for parameter in described if parameter.location == OpenApiParameter.QUERY
    ]

    def decorate(method: Method) -> Method:
        @wraps(method)
        def answer(view: Any, request: Any, **key: Any) -> Any:
            refuse_unknown(request.query_params, names, _fields(description.get("request")))
            sent = view.read(form, request.data or {}) if form is not None else {}
            if form not in (None, Nothing):
                key["sent"] = sent
            act = partial(method, view, **key)
            # What a POST has done in part is not repeated here: its sender repeats it, with its
            # key.
            result = act() if request.method == "POST" else again_if_busy(act)
            return result if isinstance(result, HttpResponseBase) else show(view, result)

        answer.role = role  # type: ignore[attr-defined]
        return describe(**description)(answer)

    return decorate


def _fields(form: Any) -> list[str]:
    """Return the names of a body's fields; none if it is not a form."""
    return list(form().fields) if isinstance(form, type) and issubclass(form, Serializer) else []


def answers(
    operation_id: str, body: Any, *, role: str = VIEW, form: Any = None, **more: Any
) -> Callable[[Method], Method]:
    """Respond with a body, or with 204 if `body` is None."""

    def show(view: Any, result: Any) -> Response:
        return Response(status=204) if body is None else Response(body(result).data)

    description = {"responses": {204: None} if body is None else body, **more}
    return _method(show, role, form, {"operation_id": operation_id, **description})


def creates(
    operation_id: str,
    body: Any,
    form: Any,
    *,
    role: str = DEFINE,
    again: Any = None,
    **more: Any,
) -> Callable[[Method], Method]:
    """Respond with 201, the object that the method created, and its URL.

    `again` describes the 200 response for an identical existing object.
    """
    description = {"responses": ({200: again} if again else {}) | {201: body}, **more}
    return answers(operation_id, body, role=role, form=form, **description)


def accepts(
    operation_id: str, *, role: str = OPERATE, form: Any = Nothing, **more: Any
) -> Callable[[Method], Method]:
    """Respond with 202 and the operation that the method starts."""
    description = {"operation_id": operation_id, "responses": {202: OperationBody}, **more}
    return _method(lambda view, operation: accepted(operation), role, form, description)


def lists(
    operation_id: str,
    body: Any,
    *,
    by: str = "pk",
    role: str = VIEW,
    parameters: Sequence[Any] = (),
) -> Callable[[Method], Method]:
    """Respond with a page of the rows that the method returns, ordered by unique columns."""

    def show(view: Any, rows: Any) -> Response:
        return page_of_rows(view.request, rows, body, *by.split())

    description: dict[str, Any] = {
        "parameters": [*parameters, *PAGING],
        "responses": listed(body),
    }
    return _method(show, role, None, {"operation_id": operation_id, **description})
