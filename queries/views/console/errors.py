"""Turn errors in a user's request into a page that keeps the form's input, never a traceback.

Passwords and other secrets are never written into a page. Users must enter them again, just as they
must select files again.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from django.contrib import messages
from django.core.exceptions import SuspiciousOperation
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    JsonResponse,
)
from django.http.multipartparser import MultiPartParserError
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.template.loader import render_to_string

from headgate_ground.masking import is_secret_name, mask_text
from queries.domain.accepted_values import refuse_characters
from queries.domain.errors import (
    Busy,
    Forbidden,
    HeadgateError,
    Invalid,
    Missing,
    TooMany,
    Unavailable,
)
from queries.models.lock_waits import is_busy
from queries.services.system.writes import full_disk
from queries.views.console.shell import (
    is_ours,
    is_script,
    next_address,
    redirect_with_message,
    wants_json,
)

#: Characters of a value in which secrets are looked for; a longer one is not kept.
LONGEST_VALUE = 64 * 1024
#: Fields of every form, which nobody types.
_OURS = frozenset({"csrfmiddlewaretoken"})
#: Fields that the forms fill in themselves: where to go, which button, and on which revision.
_UNTYPED = _OURS | frozenset(
    ["next", "do", "verb", "tab", "base", "reviewed", "revision", "suggestion"]
    + ["accept_state_change"]
)


@dataclass(frozen=True, slots=True)
class Again:
    """A field that has to be filled in again, at least in part."""

    name: str
    kind: str  # "password", "text" or "file"
    value: str = ""  # with its secrets masked


@dataclass(frozen=True, slots=True)
class KeptForm:
    """A form's fields, for a page that sends them to the same address."""

    address: str
    token: str  # against forged forms, valid for this browser
    fields: tuple[tuple[str, str], ...]
    again: tuple[Again, ...]
    typed: bool  # whether it has fields that somebody may have typed

    @property
    def encoding(self) -> str:
        """Return how the form is sent."""
        has_files = any(field.kind == "file" for field in self.again)
        return "multipart/form-data" if has_files else "application/x-www-form-urlencoded"


def submitted_form(request: HttpRequest) -> KeptForm | None:
    """Return the values sent by one of our forms; None without a form, or if it is unreadable."""
    match = request.resolver_match
    if request.method != "POST" or (match is not None and match.app_name == "api"):
        return None
    try:
        lists, files = list(request.POST.lists()), list(request.FILES)
    except (OSError, SuspiciousOperation, MultiPartParserError):
        return None  # too long, or the connection was closed
    fields: list[tuple[str, str]] = []
    again: list[Again] = []
    for name, values in lists:
        for value in () if name in _OURS else values:
            if is_secret_name(name) or len(value) > LONGEST_VALUE:
                again.append(Again(name, "password" if is_secret_name(name) else "text"))
            elif (masked := mask_text(value)) != value:
                again.append(Again(name, "text", masked))
            else:
                fields.append((name, value))
    again += [Again(name, "file") for name in files]
    named = {name for name, _ in fields} | {field.name for field in again}
    return KeptForm(
        request.get_full_path(),
        get_token(request),
        tuple(fields),
        tuple(again),
        typed=not named <= _UNTYPED,
    )


def is_same_origin(request: HttpRequest) -> bool:
    """Return whether the browser says that one of our own pages has sent a form.

    Only then is a form kept whose token against forged forms was wrong: otherwise, another site
    could fill in a form here, and have a user send it with one click.
    """
    if (site := request.headers.get("Sec-Fetch-Site")) is not None:
        return site == "same-origin"
    sender = request.headers.get("Origin") or request.headers.get("Referer") or ""
    parts = urlsplit(sender)
    return (parts.scheme, parts.netloc) == (request.scheme, request.get_host())


RETRY_AFTER_S = 30  # a person has to free disk space

#: Titles of pages after a form that was not carried out.
_HEADINGS = {409: "Not done", 422: "Not done", 429: "Too many requests"}

T = TypeVar("T")
Respond = Callable[[HttpRequest], HttpResponseBase]

_ONLY_FORMS = HeadgateError(
    "There is no page at this URL; it only accepts form submissions.",
    way_out="Go back to the page with the form.",
)


class Problems:
    """Middleware: show a HeadgateError that a view did not handle itself.

    The error of a button is shown as a message on the button's page. The error of a form in which
    something was typed is shown as a page that keeps it; a page's error is shown as a page.
    """

    def __init__(self, respond: Respond) -> None:
        self.respond = respond

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Return the view's response; explain URLs that only accept forms when visited directly."""
        response = self.respond(request)
        if isinstance(response, HttpResponseNotAllowed) and request.method in ("GET", "HEAD"):
            # A form's URL, opened from a bookmark or with the back button.
            answer = _page(request, "problem.html", _ONLY_FORMS, 405)
            answer["Allow"] = response["Allow"]
            return answer
        return response

    def process_view(
        self, request: HttpRequest, view: Any, args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Reject a form with a character that cannot be stored; browsers do not send any."""
        match = request.resolver_match
        is_form = request.method == "POST" and match is not None and match.app_name != "api"
        if not is_form or not request.user.is_authenticated:
            return None
        try:
            refuse_characters(dict(request.POST.lists()))
        except Invalid as error:
            return self.process_exception(request, error)
        return None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        """Return the page or message for one of our errors; leave others to Django."""
        if is_busy(error):
            return _busy(request)
        if not isinstance(error, HeadgateError):
            return None
        if isinstance(error, Missing):
            return _page(request, "404.html", error, 404)
        if isinstance(error, Forbidden):
            if is_script(request):
                return _line(str(error), 403)
            return _page(request, "403.html", error, 403)
        if isinstance(error, TooMany) and is_script(request):
            answer = _line(str(error), 429)
            answer["Retry-After"] = str(error.retry_after_s)
            return answer
        if is_script(request):
            return _line(str(error), 409)
        form = submitted_form(request)
        if form is None or form.typed:
            return _page(request, "problem.html", error, _status_of_page(request, error))
        return refused(request, error, next_address(request, _where_it_came_from(request)))


def _where_it_came_from(request: HttpRequest) -> str:
    """Return the page that sent a form; "/" if the header contains another host."""
    address = request.headers.get("Referer", "")
    return address if is_ours(request, address) else "/"


def server_error(request: HttpRequest) -> HttpResponse:
    """Handle any other error; a full disk and a busy database are reported as such, with 503.

    No page reads the database, which may be the part that has failed.
    """
    form = submitted_form(request)
    error = sys.exc_info()[1]
    problem = Busy() if error is not None and is_busy(error) else full_disk(error)
    if problem is None:
        if is_script(request):
            return _line("The server reported an error; the details are in its log.", 500)
        return HttpResponse(render_to_string("500.html", {"kept": form}), status=500)
    if is_script(request):
        answer = _line(f"{problem.message} {problem.way_out}", 503)
    else:
        answer = _plain(problem.message, problem.way_out, 503, kept=form)
    answer["Retry-After"] = str(getattr(problem, "retry_after_s", RETRY_AFTER_S))
    return answer


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Reject a form without a valid token; keep the input only if it was typed here."""
    problem, way_out = (
        "This form was not sent: it did not have a valid token.",
        "The page may be older than your sign-in, or cookies are blocked.",
    )
    if is_script(request):
        return _line(f"{problem} Reload the page, and try again.", 403)
    form = submitted_form(request) if is_same_origin(request) else None
    return _plain(problem, way_out, 403, title="Not sent", kept=form)


def _status_of_page(request: HttpRequest, error: HeadgateError) -> int:
    if isinstance(error, Unavailable):
        return 503
    if isinstance(error, TooMany):
        return 429
    return 422 if request.method == "POST" and isinstance(error, Invalid) else 409


def _line(text: str, status: int) -> HttpResponse:
    """Return the message that our script shows in place, next to the form."""
    return JsonResponse({"tone": "bad", "text": text}, status=status)


def _plain(problem: str, way_out: str, status: int, **more: object) -> HttpResponse:
    """Return a page that needs no database and no session."""
    context = {"problem": problem, "way_out": way_out, **more}
    return HttpResponse(render_to_string("503.html", context), status=status)


def _busy(request: HttpRequest) -> HttpResponse:
    """Return 503, with the time after which to try again."""
    error = Busy()
    if is_script(request):
        answer = _line(str(error), 503)
    else:
        answer = _page(request, "problem.html", error, 503)
    answer["Retry-After"] = str(error.retry_after_s)
    return answer


def status_of(error: HeadgateError) -> int:
    """Return the status for a page that shows its form again with an error."""
    if isinstance(error, Forbidden):
        return 403
    return 422 if isinstance(error, Invalid) else 409


def answered(
    request: HttpRequest, perform: Callable[[], T], message: str | Callable[[T], str], back: str
) -> HttpResponse:
    """Perform a form's request; report the result in place to our scripts, otherwise on `back`."""
    try:
        outcome = perform()
    except HeadgateError as error:
        return refused(request, error, back)
    return redirect_with_message(
        request, message if isinstance(message, str) else message(outcome), back
    )


def refused(request: HttpRequest, error: HeadgateError, back: str) -> HttpResponse:
    """Report why a form was not carried out, in place or as a message on `back`.

    Raises the error again if something was typed in the form: `Problems` keeps that on its page.
    """
    if wants_json(request):
        return JsonResponse({"tone": "bad", "text": str(error)})
    form = submitted_form(request)
    if form is not None and form.typed:
        raise error
    messages.error(request, str(error))
    return redirect(back)


def _page(request: HttpRequest, template: str, error: HeadgateError, status: int) -> HttpResponse:
    context = {
        "problem": error.message,
        "way_out": error.way_out,
        "kept": submitted_form(request),
        "heading": _HEADINGS.get(status, "") if request.method == "POST" else "",
    }
    return render(request, template, context, status=status)
