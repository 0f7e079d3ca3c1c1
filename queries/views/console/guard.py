"""Which users can open a page, and which user is acting on it."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required, permission_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from queries.roles import WRITE_PYTHON, may
from queries.selectors.access.permissions import insist_at

View = Callable[..., HttpResponseBase]


def needs(permission: str, *methods: str) -> Callable[[View], View]:
    """Admit users with the permission, for these methods (default: GET).

    Others get 403, anonymous users get the sign-in page, other methods 405. For operators' and
    authors' actions, the user must have the right to act on the URL's application.
    """

    def guard(view: View) -> View:
        @wraps(view)
        def reached(request: HttpRequest, *args: Any, **named: Any) -> HttpResponseBase:
            insist_at(request.user, permission, request.resolver_match)
            return view(request, *args, **named)

        allowed: Any = permission_required(permission, raise_exception=True)(reached)
        guarded: View = require_http_methods([*(methods or ["GET"])])(login_required(allowed))
        return guarded

    return guard


def user_of(request: HttpRequest) -> User:
    """Return the signed-in user; use only behind `needs`, which admits only signed-in users."""
    assert isinstance(request.user, User), "a guard has admitted a user who is not signed in"
    return request.user


def actor_and_now(request: HttpRequest) -> dict[str, Any]:
    """Return the acting user and the time, as arguments for services."""
    return {"actor": request.user.get_username(), "now": timezone.now()}


def author(request: HttpRequest) -> dict[str, Any]:
    """Return the user, the time, and whether the user may write Python, for the catalog."""
    return actor_and_now(request) | {"python": writes_python(request)}


def writes_python(request: HttpRequest) -> bool:
    """Return whether the user is allowed to load code into drivers."""
    return may(request.user, WRITE_PYTHON)
