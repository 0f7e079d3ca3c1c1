"""The methods of API endpoints, which all share the same steps from description to response.

A decorated method receives the URL's own parameters by name, and its form's input as `sent`. Its
body renders the returned value; a complete response is sent unchanged.
"""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from queries.api.derived import Body
from queries.api.errors import refuse_unknown
from queries.api.operation_bodies import OperationBody
from queries.api.paging import PAGING, page_of_rows
from queries.api.schema import describe, listed
from queries.models.history import Operation
from queries.models.lock_waits import again_if_busy
from queries.roles import DEFINE, OPERATE, VIEW

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
            returned = act() if request.method == "POST" else again_if_busy(act)
            return returned if isinstance(returned, HttpResponseBase) else show(view, returned)

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

    def show(view: Any, returned: Any) -> Response:
        return Response(status=204) if body is None else Response(body(returned).data)

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
