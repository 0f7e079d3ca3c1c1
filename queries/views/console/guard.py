"""Who may open a page: the one decorator every view stands behind."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.views.decorators.http import require_http_methods

View = Callable[..., HttpResponseBase]


def needs(permission: str, *methods: str) -> Callable[[View], View]:
    """Let through holders of the permission; others get 403, strangers the sign-in page.

    A method that is not among `methods` gets 405; none named: the view takes any.
    """

    def guard(view: View) -> View:
        allowed: Any = permission_required(permission, raise_exception=True)(view)
        guarded: View = login_required(allowed)
        return require_http_methods(methods)(guarded) if methods else guarded

    return guard


def by(request: HttpRequest) -> dict[str, Any]:
    """Return who acts, and when, as services take it."""
    return {"actor": request.user.get_username(), "now": timezone.now()}
