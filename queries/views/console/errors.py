"""Turn errors in a user's request into a page or a message, never a traceback."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from django.contrib import messages
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    JsonResponse,
)
from django.shortcuts import redirect, render
from django.template.loader import render_to_string

from queries.domain.characters import refuse_characters
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
from queries.services.system.full_disk import full_disk
from queries.views.console.shell import is_ours, next_address, told, wants_json

RETRY_AFTER_S = 30  # a person has to free disk space

T = TypeVar("T")
Respond = Callable[[HttpRequest], HttpResponseBase]

_ONLY_FORMS = HeadgateError(
    "There is no page at this URL; it only accepts form submissions.",
    way_out="Go back to the page with the form.",
)


class Problems:
    """Middleware: show a HeadgateError that a view did not handle itself.

    A form's error is shown as a message on the form's page; a page's error is shown as a page.
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
            if wants_json(request):
                return JsonResponse({"tone": "bad", "text": str(error)}, status=403)
            return _page(request, "403.html", error, 403)
        if isinstance(error, TooMany) and wants_json(request):
            answer = JsonResponse({"tone": "bad", "text": str(error)}, status=429)
            answer["Retry-After"] = str(error.retry_after_s)
            return answer
        if request.method != "POST":
            status = 503 if isinstance(error, Unavailable) else 409
            return _page(request, "problem.html", error, status)
        if wants_json(request):
            return JsonResponse({"tone": "bad", "text": str(error)}, status=409)
        messages.error(request, str(error))
        return redirect(next_address(request, _where_it_came_from(request)))


def _where_it_came_from(request: HttpRequest) -> str:
    """Return the page that sent a form; "/" if the header contains another host."""
    address = request.headers.get("Referer", "")
    return address if is_ours(request, address) else "/"


def server_error(request: HttpRequest) -> HttpResponse:
    """Handle any other error; a full disk is reported as such, with 503.

    Neither page reads the database, which may be the part that has failed.
    """
    if (problem := full_disk(sys.exc_info()[1])) is None:
        return HttpResponse(render_to_string("500.html"), status=500)
    context = {"problem": problem.message, "way_out": problem.way_out}
    answer = HttpResponse(render_to_string("503.html", context), status=503)
    answer["Retry-After"] = str(RETRY_AFTER_S)
    return answer


def _busy(request: HttpRequest) -> HttpResponse:
    """Return 503, with the time after which to try again."""
    error = Busy()
    if wants_json(request):
        answer: HttpResponse = JsonResponse({"tone": "bad", "text": str(error)}, status=503)
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
    request: HttpRequest, ask: Callable[[], T], said: str | Callable[[T], str], back: str
) -> HttpResponse:
    """Perform a form's request; report the result in place to our scripts, otherwise on `back`."""
    try:
        found = ask()
    except HeadgateError as error:
        if wants_json(request):
            return JsonResponse({"tone": "bad", "text": str(error)})
        messages.error(request, str(error))
        return redirect(back)
    return told(request, said if isinstance(said, str) else said(found), back)


def _page(request: HttpRequest, template: str, error: HeadgateError, status: int) -> HttpResponse:
    context = {"problem": error.message, "way_out": error.way_out}
    return render(request, template, context, status=status)
