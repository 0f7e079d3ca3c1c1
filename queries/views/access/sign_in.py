"""The sign-in page: password for local accounts, and a link to the identity provider."""

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.urls import path, reverse

from queries.roles import ADMINISTER
from queries.selectors.access.group_roles import comes_by_single_sign_on


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
