"""Map errors to HTTP: every error is an RFC 9457 problem.

Our own errors and those of REST framework have the same form, so a script needs only one branch:
`title` is the kind of error, `detail` says what is wrong in this case, `way_out` says what to do,
and `problems` lists an input's errors field by field.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import set_rollback

from headgate_ground.masking import mask_text
from queries.domain.errors import (
    Busy,
    Conflict,
    Forbidden,
    HeadgateError,
    Invalid,
    Missing,
    NotAllowed,
    Problem,
    SignInRefused,
    StaleRevision,
    TooMany,
    Unavailable,
)
from queries.domain.readings import counted
from queries.models.lock_waits import is_busy
from queries.services.system.writes import full_disk

logger = logging.getLogger(__name__)

PROBLEM_JSON = "application/problem+json"
_NOT_NAMED = "This URL does not exist. URLs end with a slash."

#: Error -> status and title; the most derived matching class wins.
TABLE: dict[type[HeadgateError], tuple[int, str]] = {
    Invalid: (status.HTTP_422_UNPROCESSABLE_ENTITY, "The definition is invalid"),
    Forbidden: (status.HTTP_403_FORBIDDEN, "You do not have the required right"),
    SignInRefused: (status.HTTP_403_FORBIDDEN, "Single sign-on failed"),
    NotAllowed: (status.HTTP_409_CONFLICT, "Not possible in the current state"),
    StaleRevision: (status.HTTP_412_PRECONDITION_FAILED, "The definition has changed"),
    Conflict: (status.HTTP_409_CONFLICT, "Conflict with the current state"),
    Missing: (status.HTTP_404_NOT_FOUND, "Not found"),
    TooMany: (status.HTTP_429_TOO_MANY_REQUESTS, "Too many requests"),
    Busy: (status.HTTP_503_SERVICE_UNAVAILABLE, "The database is busy"),
    Unavailable: (status.HTTP_503_SERVICE_UNAVAILABLE, "A part of the system is not responding"),
    HeadgateError: (status.HTTP_400_BAD_REQUEST, "The request failed"),
}

#: What to do about an error that does not say so itself; the most derived matching class wins.
_WAYS_OUT: dict[type[HeadgateError], str] = {
    Forbidden: "Ask an admin to grant you that permission.",
    SignInRefused: "Ask an admin for access.",
    NotAllowed: "Check its state, and try again when it has changed.",
    Conflict: "Check its current state, then request it again.",
    Missing: "Check the name; the lists show what exists.",
    Unavailable: "Try again in a moment; GET /readyz shows which part is down.",
    HeadgateError: "Correct the request; GET /api/v1/docs/ describes it.",
}
_SEE = "Correct each field listed in “problems”, and send it again."
_CORRECT = "Correct the value; GET /api/v1/docs/ describes it."

#: REST framework's own errors by status: code, title, remedy.
_HTTP: dict[int, tuple[str, str, str]] = {
    400: ("malformed", "Malformed request", "Send well-formed JSON."),
    401: (
        "unauthenticated",
        "Authentication required",
        "Send “Authorization: Token …”, or sign in.",
    ),
    403: ("forbidden", "Your role does not allow this", "Ask an admin for the required role."),
    404: ("missing", "Not found", "Check the URL; GET /api/v1/docs/ lists them all."),
    405: ("method-not-allowed", "Method not allowed", "Use a method listed in “Allow”."),
    406: ("not-acceptable", "Not acceptable", "Accept application/json."),
    413: ("too-large", "The body is too large", "Send less data in one request."),
    415: ("unsupported-media-type", "Unsupported media type", "Send application/json."),
    428: (
        "precondition-required",
        "If-Match is required",
        "Send If-Match with the ETag from a GET, or If-None-Match: * to create it.",
    ),
    429: ("too-many-requests", "Too many requests", "Wait for the time given in Retry-After."),
}


class TooLarge(exceptions.APIException):
    """A body is larger than the limit."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too-large"

    def __init__(self, most: int = 0) -> None:
        most = most or settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        super().__init__(f"The body is larger than {most:,} bytes.")


class PreconditionRequired(exceptions.APIException):
    """A PUT without If-Match could overwrite a revision that its sender has not read."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED
    default_detail = "Send If-Match with the ETag returned by a GET of this URL."
    default_code = "precondition-required"


def invalid(field: str, value: Any, message: str, way_out: str = "") -> Invalid:
    """Return an error for one field or query parameter of a request."""
    return Invalid([Problem(field, str(value)[:200], message, way_out)])


def refuse_unknown(
    sent: Mapping[str, str], allowed_names: Collection[str], fields: Collection[str] = ()
) -> None:
    """Raise `Invalid` for each query parameter that a URL does not support.

    If a misspelled parameter were ignored, a script would act on everything, or would act without a
    dry run. `fields` are the body's fields: the parameter may belong there.
    """
    problems = []
    for name, value in sent.items():
        if name in allowed_names:
            continue
        if name in fields:
            way_out = f"Send {name} as a field of the body."
        elif near := get_close_matches(name, allowed_names, n=1):
            way_out = f"Did you mean {near[0]}?"
        elif name == "dry_run":
            way_out = (
                "Remove it: a dry run is not available here. GET /api/v1/docs/ shows where one is."
            )
        else:
            way_out = (
                f"Known: {', '.join(allowed_names)}."
                if allowed_names
                else ("Remove it: this URL has no parameters.")
            )
        message = "is not a parameter of this URL."
        problems.append(Problem(name[:200], mask_text(value)[:200], message, way_out))
    if problems:
        raise Invalid(problems)


def problem_of(error: HeadgateError) -> dict[str, Any]:
    """Return the problem for one of our errors."""
    code, title = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    if isinstance(error, Invalid):
        faults = counted(error.count, "problem")
        shown = len(error.problems)
        summary = f"{faults}, see “problems”" + (
            f" for the first {shown}." if shown < error.count else "."
        )
        body = _problem(code, error.code, title, summary, _SEE)
        body["problems"] = [
            {
                name: value
                for name, value in asdict(problem).items()
                if value is not None and name != "connector"
            }
            | {"way_out": problem.way_out or _CORRECT}
            for problem in error.problems
        ]
        return body
    way_out = next(_WAYS_OUT[kind] for kind in type(error).__mro__ if kind in _WAYS_OUT)
    return _problem(code, error.code, title, error.message, error.way_out or way_out)


def answer(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the response to an error in a view; None turns an unknown error into a 500."""
    if is_busy(error):
        error = Busy()
    if isinstance(error, HeadgateError):
        set_rollback()
        response = _response(problem_of(error))
        if (wait_s := getattr(error, "retry_after_s", None)) is not None:
            response["Retry-After"] = str(wait_s)
        return response
    if isinstance(error, Http404):
        error = exceptions.NotFound(str(error) or _NOT_NAMED)
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    elif isinstance(error, RequestDataTooBig):  # Django's, when something reads a body as a form
        error = TooLarge()
    if not isinstance(error, exceptions.APIException):
        if (problem := full_disk(error)) is not None:
            set_rollback()
            return _response(problem_of(problem))
        logger.exception("the API failed to respond")
        set_rollback()
        detail = "This is a bug in Headgate; the log of the web process has the details."
        way_out = "Report it with these log lines."
        return _response(_problem(500, "internal", "Internal error", detail, way_out))
    set_rollback()
    code, title, way_out = _HTTP.get(
        error.status_code, ("error", "The request failed", _WAYS_OUT[HeadgateError])
    )
    if isinstance(error, exceptions.ValidationError):
        return _response(problem_of(Invalid(list(_problems(error.detail)))))
    response = _response(_problem(error.status_code, code, title, str(error.detail), way_out))
    if header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = header
    if wait := getattr(error, "wait", None):
        response["Retry-After"] = str(int(wait))
    return response


def _problem(code: int, name: str, title: str, detail: str, way_out: str) -> dict[str, Any]:
    return {
        "type": f"urn:headgate:problem:{name}",
        "title": title,
        "status": code,
        "detail": detail,
        "way_out": way_out,
    }


def _response(body: dict[str, Any]) -> Response:
    return Response(body, status=body["status"], content_type=PROBLEM_JSON)


def _problems(detail: Any, field: str = "") -> list[Problem]:
    """Return REST framework's nested messages as problems with dotted field names."""
    if isinstance(detail, dict):
        pairs = [(str(key), nested) for key, nested in detail.items()]
    elif isinstance(detail, list) and any(isinstance(nested, dict | list) for nested in detail):
        pairs = [(str(position), nested) for position, nested in enumerate(detail)]
    else:
        messages = detail if isinstance(detail, list) else [detail]
        return [Problem(field or "body", "", str(message)) for message in messages]
    prefix = f"{field}." if field else ""
    own = {"non_field_errors": field or "body"}
    return [p for key, nested in pairs for p in _problems(nested, own.get(key, prefix + key))]
