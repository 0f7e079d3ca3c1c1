"""Settings pages: API tokens, created by admins, and accounts with their roles."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables

from queries.domain.errors import HeadgateError, Invalid
from queries.models.tokens import Scope
from queries.roles import ADMINISTER, ORDER, ROLE_WORDS, VIEW, Role
from queries.selectors.access.insisting import limits_text
from queries.selectors.access.teams import teams
from queries.selectors.console.accounts import (
    owner_named,
    people,
    person,
    token_seen_by,
    tokens_seen_by,
)
from queries.services.access import accounts
from queries.services.access.sessions import end_sessions
from queries.services.access.teams import set_grants
from queries.services.console.tokens import (
    DEFAULT_DAYS,
    DEFAULT_SCOPE,
    LONGEST_DAYS,
    create_token,
    revoke_token,
)
from queries.views.console.errors import refused
from queries.views.console.guard import by, needs
from queries.views.console.numbers import whole

#: What each scope lets a token do, within the rights of the token's user.
SCOPE_WORDS = {
    Scope.READ: "can view everything",
    Scope.OPERATE: "can start, stop and restart queries, and resolve failures",
    Scope.AUTHOR: "can also change definitions",
    Scope.ADMIN: "can do everything that an admin can",
}


def _owner(request: HttpRequest) -> User:
    user = request.user
    assert isinstance(user, User)  # `needs` admits no anonymous user
    return user


@never_cache
@needs(VIEW, "GET", "POST")
def tokens(request: HttpRequest) -> HttpResponseBase:
    """Show the user's own tokens, or all tokens to an admin, who can create one with the form."""
    return give_token(request) if request.method == "POST" else _tokens(request, {})


@needs(ADMINISTER, "POST")
@sensitive_variables("text")
def give_token(request: HttpRequest) -> HttpResponseBase:
    """Create a token for a user; its text is shown on this page and nowhere else."""
    fields = ("owner", "name", "days", "scope", "team", "applications")
    typed = {name: request.POST.get(name, "").strip() for name in fields}
    try:
        row, text = create_token(
            user=owner_named(typed["owner"]),
            name=typed["name"],
            days=whole(typed["days"]) or 0,
            scope=typed["scope"] or DEFAULT_SCOPE,
            team=typed["team"],
            applications=[one for one in typed["applications"].replace(",", " ").split() if one],
            **by(request),
        )
    except Invalid as error:
        problems = {one.field: one for one in error.problems}
        return _tokens(request, {**typed, "problems": problems}, status=422)
    return _tokens(request, {"owner": typed["owner"], "made": row, "text": text})


def _tokens(request: HttpRequest, more: dict[str, Any], status: int = 200) -> HttpResponse:
    user = _owner(request)
    context = {
        "days": str(DEFAULT_DAYS),
        "longest": LONGEST_DAYS,
        "owners": [one for one in people() if one.user.is_active and one.role],
        "owner": user.username,
        "tokens": [(row, limits_text(row)) for row in tokens_seen_by(user)],
        "scopes": list(SCOPE_WORDS.items()),
        "scope": str(DEFAULT_SCOPE),
        "teams": list(teams()),
        "now": timezone.now(),
        **more,
    }
    return render(request, "console/settings/tokens.html", context, status=status)


@needs(VIEW, "POST")
def revoke(request: HttpRequest, uuid: UUID) -> HttpResponseBase:
    """Revoke one of the user's own tokens; an admin can revoke any token."""
    token = token_seen_by(_owner(request), uuid)
    revoke_token(token=token, **by(request))
    messages.success(request, f"Token {token.name} was revoked.")
    return redirect("tokens")


@never_cache
@needs(ADMINISTER, "GET", "POST")
@sensitive_variables("password")
def users(request: HttpRequest) -> HttpResponseBase:
    """Show accounts and roles; create an account, whose password is shown only once."""
    context: dict[str, Any] = {"username": "", "given": Role.VIEWER}
    status = 200
    if request.method == "POST":
        context["username"] = request.POST.get("username", "").strip()
        context["given"] = _role(request)
        try:
            user, password = accounts.create_user(
                username=context["username"], role=context["given"], **by(request)
            )
            context |= {"made": user, "password": password, "username": ""}
        except Invalid as error:
            context["problem"] = error.problems[0]
            status = 422
    return _users(request, context, status)


def _users(request: HttpRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    context = {
        "people": people(),
        "roles": [(role.value, ROLE_WORDS[role]) for role in ORDER],
        "now": timezone.now(),
        **context,
    }
    return render(request, "console/settings/users.html", context, status=status)


def _role(request: HttpRequest) -> Role | None:
    chosen = request.POST.get("role", "")
    return Role(chosen) if chosen in set(Role) else None


@never_cache
@needs(ADMINISTER, "POST")
@sensitive_variables("password")
def change_user(request: HttpRequest, user_id: int) -> HttpResponseBase:
    """Change an account's role or rights, enable, disable or sign it out, or reset its password."""
    user = person(user_id)
    act = request.POST.get("do", "role")
    try:
        if act == "password":
            password = accounts.reset_password(user=user, **by(request))
            return _users(request, {"made": user, "password": password, "given": Role.VIEWER})
        if act == "grants":
            set_grants(
                user=user,
                all_teams="all_teams" in request.POST,
                write_python="write_python" in request.POST,
                **by(request),
            )
            done = "now has the selected rights"
        elif act in ("shut-out", "let-in"):
            accounts.set_active(user=user, active=act == "let-in", **by(request))
            done = "is active again" if act == "let-in" else "is deactivated"
        elif act == "sign-out":
            ended = end_sessions(user=user, **by(request))
            done = f"is signed out of {ended} browser{'' if ended == 1 else 's'}"
        else:
            role = _role(request)
            accounts.set_role(user=user, role=role, **by(request))
            done = f"now has the {role} role" if role else "no longer has a role"
        messages.success(request, f"{user.username} {done}.")
    except HeadgateError as error:
        return refused(request, error, reverse("users"))
    return redirect("users")


urlpatterns = [
    path("settings/tokens/", tokens, name="tokens"),
    path("settings/tokens/<uuid:uuid>/revoke/", revoke, name="token-revoke"),
    path("settings/users/", users, name="users"),
    path("settings/users/<int:user_id>/", change_user, name="user-change"),
]
