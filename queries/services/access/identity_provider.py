"""Communicate with the identity provider through allauth, adding the checks it lacks.

allauth discovers the provider's endpoints, stores the state and the PKCE verifier in the session,
and exchanges the code. Its own checks of the response are not used: `id_tokens` makes all checks.
"""

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import quote_plus, urljoin

import requests
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter, get_adapter
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from headgate_ground.providers import is_allowed_address
from queries.domain.access import Arrival, groups_in, name_in
from queries.domain.errors import SignInRefused, Unavailable

logger = logging.getLogger(__name__)

#: Timeout for one response of the provider, in seconds.
ANSWER_LIMIT_S = 5
BASIC = "client_secret_basic"
#: Endpoints that the provider's document must specify, for browsers and for Headgate.
_PLACES = ("authorization_endpoint", "token_endpoint", "jwks_uri")
#: Errors that a malformed or failed response can raise.
_ODD = (requests.RequestException, ValueError, KeyError, TypeError, AttributeError)


class BackChannel(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """The HTTP session that allauth uses (set as `SOCIALACCOUNT_ADAPTER`)."""

    def get_requests_session(self) -> requests.Session:
        """Return a session that has a timeout and does not follow redirects."""
        return _Session()


class _Session(requests.Session):  # type: ignore[misc]
    def request(self, method: Any, url: Any, *given: Any, **more: Any) -> requests.Response:
        if not is_allowed_address(str(url), http_allowed=settings.OIDC_ALLOW_HTTP):
            raise requests.exceptions.InvalidURL(
                "the identity provider must not be contacted there"
            )
        # A redirect could send the code and our secret over plain http, or to an internal host.
        more |= {"timeout": ANSWER_LIMIT_S, "allow_redirects": False}
        answer = super().request(method, url, *given, **more)
        if answer.is_redirect:
            raise requests.TooManyRedirects("the identity provider redirects")
        return answer


class _Adapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """allauth's adapter for this provider."""

    def __init__(self, provider: "Provider") -> None:
        super().__init__(provider.request, provider.app.provider_id)
        self._provider = provider

    def get_provider(self) -> "Provider":
        return self._provider

    @cached_property
    def openid_config(self) -> dict[str, Any]:
        """Return the provider's discovery document; its issuer must be the configured one."""
        said: dict[str, Any] = asked_of(self._provider.server_url)
        if said["issuer"] != self._provider.app.provider_id:
            raise ValueError("the issuer's document names another issuer")
        for name in _PLACES:
            if not is_allowed_address(str(said[name]), http_allowed=settings.OIDC_ALLOW_HTTP):
                raise ValueError(f"{name} is not a valid URL")
        return said

    @property
    def basic_auth(self) -> bool:
        return bool(settings.OIDC_CLIENT_AUTH == BASIC)

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        address = reverse("sso-callback")
        return (
            urljoin(settings.PUBLIC_URL + "/", address[1:])
            if settings.PUBLIC_URL
            else (request.build_absolute_uri(address))
        )


class Provider(OpenIDConnectProvider):  # type: ignore[misc]
    """The identity provider from the settings."""

    pkce_enabled_default = True
    oauth2_adapter_class = _Adapter

    def __init__(self, request: HttpRequest) -> None:
        """Read the provider from the settings; there is one if HEADGATE_OIDC_ISSUER is set."""
        app = SocialApp(
            provider=self.id,
            provider_id=settings.OIDC_ISSUER,
            name=settings.OIDC_NAME,
            client_id=settings.OIDC_CLIENT_ID,
            secret=settings.OIDC_CLIENT_SECRET,
            settings={
                "server_url": settings.OIDC_ISSUER.rstrip("/"),
                "scope": ["openid", *settings.OIDC_SCOPES],
            },
        )
        super().__init__(request, app=app)

    def get_oauth2_adapter(self, request: HttpRequest) -> _Adapter:
        return _Adapter(self)

    def begin(self, *, next_address: str, nonce: str) -> Any:
        """Return the redirect to the provider; raise `Unavailable` if it is not responding.

        The nonce and the PKCE verifier are stored in the session, under the state.
        """
        try:
            return self.redirect(
                self.request,
                "login",
                next_url=next_address,
                data={"nonce": nonce},
                auth_params={"nonce": nonce},
            )
        except _ODD as error:
            raise _silent(error) from error


def arrival(provider: Provider, state: Mapping[str, Any]) -> Arrival:
    """Return the user that this request's code identifies.

    Raises `SignInRefused` for an invalid response, and `Unavailable` if there is none.
    """
    adapter = provider.get_oauth2_adapter(provider.request)
    try:
        config = adapter.openid_config
        token = _token(adapter, state["pkce_code_verifier"])
        keys = dict(asked_of(config["jwks_uri"]))
    except _ODD as error:
        raise _silent(error) from error
    from queries.services.access.id_tokens import claims_of  # brings the signatures' algorithms

    claims = claims_of(
        token.get("id_token"),
        keys=keys,
        issuer=settings.OIDC_ISSUER,
        client_id=settings.OIDC_CLIENT_ID,
        nonce=state["data"]["nonce"],
    )
    if settings.OIDC_GROUPS_CLAIM not in claims and "userinfo_endpoint" in config:
        claims = _more(config["userinfo_endpoint"], token["access_token"], claims)
    return Arrival(
        issuer=settings.OIDC_ISSUER,
        subject=claims["sub"],
        name=name_in(claims),
        groups=groups_in(claims, settings.OIDC_GROUPS_CLAIM),
    )


def asked_of(address: str) -> Any:
    """Return the JSON at one of the provider's URLs; raise an error listed in `_ODD`."""
    with get_adapter().get_requests_session() as session:
        answer = session.get(address)
        answer.raise_for_status()
        return answer.json()


def _token(adapter: _Adapter, verifier: str) -> dict[str, Any]:
    """Exchange this request's code and PKCE verifier for the tokens."""
    provider = adapter.get_provider()
    client = adapter.get_client(provider.request, provider.app)
    if adapter.basic_auth:  # RFC 6749, 2.3.1: encode both first, which allauth does not do
        client.consumer_key = quote_plus(client.consumer_key)
        client.consumer_secret = quote_plus(client.consumer_secret)
    try:
        token: dict[str, Any] = adapter.get_access_token_data(
            provider.request, provider.app, client, pkce_code_verifier=verifier
        )
    except OAuth2Error as error:
        logger.warning("single sign-on: %s", str(error)[:500])
        raise SignInRefused("It did not accept the code that it issued.") from error
    return token


def _more(address: str, access_token: str, claims: dict[str, Any]) -> dict[str, Any]:
    """Return the claims, completed from the userinfo endpoint; the ID token's take precedence."""
    try:
        with get_adapter().get_requests_session() as session:
            answer = session.get(address, headers={"Authorization": f"Bearer {access_token}"})
            answer.raise_for_status()
            told: dict[str, Any] = answer.json()
            subject = told["sub"]
    except _ODD as error:
        raise _silent(error) from error
    if subject != claims["sub"]:
        raise SignInRefused("It returned a different user from the one who signed in.")
    return {**told, **claims}


def _silent(error: Exception) -> Unavailable:
    logger.warning("single sign-on: %s: %s", type(error).__name__, str(error)[:500])
    return Unavailable(
        f"{settings.OIDC_NAME} is not responding as expected.",
        way_out="Try again in a minute. The log of the web process has the details.",
    )
