"""Signing in, by password or the identity provider, and the middleware that records who
requests.
"""

import logging
import secrets
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from allauth.socialaccount.internal import statekit
from django.conf import settings
from django.contrib.auth import SESSION_KEY, login
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from controlplane.masking import WebSearch
from headgate_ground.masking import searched_by
from queries.domain.errors import HeadgateError, SignInRefused, Unavailable
from queries.roles import ADMINISTER
from queries.selectors.access import comes_by_single_sign_on
from queries.services.access.accounts import note_use
from queries.services.access.audit import Asker, asked_by, note_proxy
from queries.services.access.identity_provider import Provider, arrival
from queries.services.access.sign_ins import NoRole, let_in, note_failed_arrival
from queries.views.console.shell import is_ours, next_address

logger = logging.getLogger(__name__)

Respond = Callable[[HttpRequest], HttpResponseBase]

#: Requests that a page makes by itself, so they do not show that a user is present.
_UNATTENDED = frozenset({"live"})
NOTED_EVERY = timedelta(minutes=1)


class Requests:
    """Record the requester and the use of the session; keep responses out of caches.

    A request searches only the beginning of its strings for secrets in this process.
    """

    def __init__(self, respond: Respond) -> None:
        self.respond = respond

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Return the view's response."""
        address = str(request.META.get("REMOTE_ADDR") or "")
        if "X-Forwarded-For" in request.headers and request.user.is_authenticated:
            note_proxy(request.META, now=timezone.now())
        asker = Asker(address=address, browser=request.headers.get("User-Agent", ""))
        with asked_by(asker), searched_by(WebSearch()):
            response = self.respond(request)
        response.headers.setdefault("Cache-Control", "no-store")  # static files never get here
        self._note_use(request)
        return response

    def _note_use(self, request: HttpRequest) -> None:
        """Record that the session is in use, once a minute; a failure must not break the page."""
        session = request.session
        seen_at = getattr(session, "seen_at", None)
        view = request.resolver_match.url_name if request.resolver_match else ""
        now = timezone.now()
        if seen_at is None or now - seen_at < NOTED_EVERY or view in _UNATTENDED:
            return
        try:
            if session.session_key and session.get(SESSION_KEY):
                note_use(session.session_key, now=now)
        except DatabaseError as error:
            logger.warning("could not record that a session is in use: %s", error)


class LocalSignIn(AuthenticationForm):
    """Name and password of a local account."""

    def confirm_login_allowed(self, user: Any) -> None:
        """Reject single sign-on users, and non-admins if only admins may use passwords."""
        super().confirm_login_allowed(user)
        assert isinstance(user, User)
        if comes_by_single_sign_on(user):
            raise ValidationError(f"This account signs in with {settings.OIDC_NAME}.")
        if settings.LOCAL_LOGIN == "admins" and not user.has_perm(ADMINISTER):
            raise ValidationError("Only admins can sign in with a password here.")


class SignIn(LoginView):
    """The sign-in page; users who are already signed in are redirected."""

    authentication_form = LocalSignIn
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Sign in for the normal session lifetime, whatever the previous session's lifetime was."""
        answer: HttpResponse = super().form_valid(form)
        self.request.session.set_expiry(None)
        return answer

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        """Add the identity provider's button, if there is one."""
        context: dict[str, Any] = super().get_context_data(**more)
        if settings.OIDC_ISSUER:
            onward = self.get_redirect_url()  # "" if it leads to another host
            asked = f"?{urlencode({'next': onward})}" if onward else ""
            context["provider"] = settings.OIDC_NAME
            context["provider_address"] = reverse("sso-login") + asked
        context["for_admins"] = bool(settings.OIDC_ISSUER) and settings.LOCAL_LOGIN == "admins"
        return context


urlpatterns = [
    path("login/", SignIn.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]


#: The authentication backend stored in Django's sessions.
_BACKEND = "django.contrib.auth.backends.ModelBackend"
#: Seconds that a user may spend at the provider: as long as allauth keeps a state.
ON_THE_WAY_S = statekit.STATE_TTL
#: Maximum groups listed on a page.
_MOST_GROUPS = 100

View = Callable[[HttpRequest], HttpResponseBase]


def _on_the_way(view: View) -> View:
    """Serve a sign-in step if an identity provider is configured; show errors on a page."""

    @never_cache
    @require_GET
    @wraps(view)
    def step(request: HttpRequest) -> HttpResponseBase:
        if not settings.OIDC_ISSUER:
            raise Http404
        try:
            return view(request)
        except HeadgateError as error:
            return _not_in(request, error)

    return step


@_on_the_way
def begin(request: HttpRequest) -> HttpResponseBase:
    """Redirect to the identity provider, with a state, a nonce and the PKCE challenge.

    This is a link, although other changes require a form: our pages' security policy does not
    allow forms that lead to other sites, and if another site sends a user here, that user can only
    sign in with their own account.
    """
    address = next_address(request)
    if request.user.is_authenticated:
        return redirect(address)
    request.session.set_expiry(ON_THE_WAY_S)  # an anonymous session; signing in sets another age
    answer: HttpResponse = Provider(request).begin(
        next_address=address, nonce=secrets.token_urlsafe(32)
    )
    return answer


@_on_the_way
def come_back(request: HttpRequest) -> HttpResponseBase:
    """Handle the identity provider's response, once, in the browser that was redirected to it."""
    provider = Provider(request)
    try:
        state = provider.unstash_redirect_state(request, request.GET.get("state", ""))
    except PermissionDenied as error:
        raise SignInRefused(
            "This sign-in was already used, has expired, or was started in another browser.",
            way_out="Sign in again.",
        ) from error
    if request.GET.get("iss", settings.OIDC_ISSUER) != settings.OIDC_ISSUER:
        raise SignInRefused("The response comes from another issuer.")
    if "code" not in request.GET:
        said = request.GET.get("error", "")[:80]
        raise SignInRefused(f"It responded “{said}”." if said else "It did not send a code.")
    who = arrival(provider, state)
    try:
        user = let_in(who, now=timezone.now())
    except NoRole:
        return _without_a_role(request, who.groups)
    login(request, user, backend=_BACKEND)
    request.session.set_expiry(timezone.now() + timedelta(hours=settings.OIDC_SESSION_HOURS))
    address = state.get("next", "/")
    return redirect(address if is_ours(request, address) else "/")


def _not_in(request: HttpRequest, error: HeadgateError) -> HttpResponse:
    logger.warning("single sign-on: access denied: %s", error)
    note_failed_arrival(error.message)
    status = 503 if isinstance(error, Unavailable) else 403
    context = {"problem": error.message, "way_out": error.way_out, "provider": settings.OIDC_NAME}
    return render(request, "access/not_signed_in.html", context, status=status)


def _without_a_role(request: HttpRequest, groups: tuple[str, ...]) -> HttpResponse:
    logger.warning("single sign-on: access denied: no role for %d groups", len(groups))
    note_failed_arrival(NoRole().message)
    context = {
        "groups": groups[:_MOST_GROUPS],
        "more": max(len(groups) - _MOST_GROUPS, 0),
        "claim": settings.OIDC_GROUPS_CLAIM,
        "contact": settings.OIDC_CONTACT,
        "provider": settings.OIDC_NAME,
    }
    return render(request, "access/without_a_role.html", context, status=403)


urlpatterns += [
    path("sso/login/", begin, name="sso-login"),
    path("sso/callback/", come_back, name="sso-callback"),
]
