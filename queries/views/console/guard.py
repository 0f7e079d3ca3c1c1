"""Who may open a page: the one decorator every view stands behind."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpResponseBase

View = Callable[..., HttpResponseBase]


def needs(permission: str) -> Callable[[View], View]:
    """Let through holders of the permission; others get 403, strangers the sign-in page."""

    def guard(view: View) -> View:
        allowed: Any = permission_required(permission, raise_exception=True)(view)
        guarded: View = login_required(allowed)
        return guarded

    return guard
