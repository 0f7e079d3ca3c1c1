"""The user's own account: display time zone, password, and sessions."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from queries.domain.accepted_values import zone_names
from queries.roles import VIEW
from queries.selectors.access import name_of, sessions_of
from queries.services.access.accounts import end_session, end_sessions, note_new_password
from queries.views.console.shell import THEME_AGE_S, actor_and_now, needs, user_of

#: The cookie read by `static/js/zone.js`; without it, times are in UTC.
ZONE = "zone"
BROWSER = "browser"
#: (word in the header, name); the first match counts, because other browsers also claim the later
#: words.
_BROWSERS = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


@never_cache
@needs(VIEW, "GET", "POST")
@sensitive_post_parameters()
def account(request: HttpRequest) -> HttpResponseBase:
    """Show the account; change the password with the form on it."""
    user = user_of(request)
    form = PasswordChangeForm(user, request.POST if request.method == "POST" else None)
    for field in form.fields.values():
        field.widget.attrs["class"] = "form-control"
    if request.method == "POST" and form.is_valid():
        form.save()
        update_session_auth_hash(request, user)  # this session continues, under a new key
        request.session.save()  # before the others end, so that it is found by its new key
        note_new_password(user=user, but=_key(request), now=timezone.now())
        messages.success(request, "Your password was changed. Other browsers are signed out.")
        return redirect("account")
    chosen = request.COOKIES.get(ZONE, "")
    context: dict[str, Any] = {
        "form": form,
        "zone": chosen if chosen == BROWSER or chosen in zone_names() else "UTC",
        "zones": sorted(zone_names() - {"UTC"}),
        "sessions": _sessions(request),
        "idle_hours": settings.SESSION_IDLE_MIN / 60,
        "longest_days": settings.SESSION_COOKIE_AGE // 86400,
    }
    status = 422 if form.errors else 200
    return render(request, "console/settings/account.html", context, status=status)


def _key(request: HttpRequest) -> str:
    return request.session.session_key or ""


def _sessions(request: HttpRequest) -> list[dict[str, Any]]:
    rows = sessions_of(user_of(request), now=timezone.now())
    return [
        {"row": row, "name": name_of(row.pk), "browser": _browser_name(row.browser)}
        | {"here": row.pk == _key(request)}
        for row in rows
    ]


@needs(VIEW, "POST")
def set_zone(request: HttpRequest) -> HttpResponseBase:
    """Store the chosen zone in a cookie; an unknown zone resets it to UTC."""
    response = redirect("account")
    zone = request.POST.get("zone", "")
    if zone == BROWSER or zone in zone_names() - {"UTC"}:
        response.set_cookie(ZONE, zone, max_age=THEME_AGE_S, samesite="Lax")
    else:
        response.delete_cookie(ZONE, samesite="Lax")
    return response


@needs(VIEW, "POST")
def leave_elsewhere(request: HttpRequest) -> HttpResponseBase:
    """End the user's other sessions; this one continues."""
    ended = end_sessions(user=user_of(request), but=_key(request), **actor_and_now(request))
    messages.success(request, f"Signed out of {ended} other browser{'' if ended == 1 else 's'}.")
    return redirect("account")


@needs(VIEW, "POST")
def end_own_session(request: HttpRequest) -> HttpResponseBase:
    """End one of the user's own sessions."""
    name = request.POST.get("session", "")
    end_session(user=user_of(request), name=name, **actor_and_now(request))
    messages.success(request, "That browser was signed out.")
    return redirect("account")


def _browser_name(header: str) -> str:
    """Return a name such as "Firefox on Linux"; otherwise the header's first 40 characters."""
    browser = next((name for word, name in _BROWSERS if word in header), "")
    system = next((name for word, name in _SYSTEMS if word in header), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or header[:40] or "Unknown browser"


urlpatterns = [
    path("settings/account/", account, name="account"),
    path("settings/account/zone/", set_zone, name="account-zone"),
    path("settings/account/elsewhere/", leave_elsewhere, name="account-elsewhere"),
    path("settings/account/session/", end_own_session, name="account-session"),
]
