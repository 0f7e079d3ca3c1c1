"""Sign in through the identity provider: the redirect to it, and its callback."""

import logging
import secrets
from collections.abc import Callable
from datetime import timedelta
from functools import wraps

from allauth.socialaccount.internal import statekit
from django.conf import settings
from django.contrib.auth import login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from queries.domain.errors import HeadgateError, SignInRefused, Unavailable
from queries.services.access.identity_provider import Provider, arrival
from queries.services.access.sign_ins import note_failed_arrival
from queries.services.access.single_sign_on import NoRole, let_in
from queries.views.console.shell import is_ours, next_address

logger = logging.getLogger(__name__)

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


urlpatterns = [
    path("sso/login/", begin, name="sso-login"),
    path("sso/callback/", come_back, name="sso-callback"),
]
