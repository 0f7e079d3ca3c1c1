"""Settings pages for rights: teams, group roles, admin grants (secrets, paths, catalogs, hosts)."""

from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables

from queries.domain.catalogs import CatalogAuth, CatalogType
from queries.domain.errors import HeadgateError, Invalid
from queries.domain.secrets import HolderKind
from queries.models.access.accounts import Scope
from queries.models.catalogs import Catalog
from queries.roles import ADMINISTER, ORDER, ROLE_WORDS, VIEW, Role
from queries.selectors.access import limits_text, team_named, teams, tokens_of_team
from queries.selectors.console import people, person
from queries.selectors.secrets import holder_names, secrets
from queries.selectors.supervision.applications import application
from queries.services.access import accounts
from queries.services.access.accounts import end_sessions
from queries.services.access.admin_objects import unpacked
from queries.services.access.sign_ins import (
    GROUP_ROLES,
    add_group_role,
    change_group_role,
    remove_group_role,
)
from queries.services.access.teams import TEAMS, create_team, set_grants, set_members
from queries.services.access.tokens import DEFAULT_DAYS, DEFAULT_SCOPE, LONGEST_DAYS, TOKENS
from queries.services.catalogs import CATALOGS, CatalogForm, change_catalog, declare_catalog
from queries.services.code.git import GIT_HOSTS
from queries.services.definitions import rights
from queries.services.definitions.surroundings import proposals
from queries.services.secrets import ALLOWED_PATHS, BINDINGS
from queries.views.console.admin_objects import AdminPage, Typed
from queries.views.console.errors import answered, refused
from queries.views.console.fragments import whole
from queries.views.console.shell import actor_and_now, needs

# --- teams: everyone can read them, admins can change them --------------------------------

TEAM_LIST = AdminPage(
    TEAMS,
    "teams",
    "settings/teams/",
    "access/teams.html",
    added="Team {row.name} was created. Choose its members.",
    removed="Team {row.name} was deleted.",
    remove=("delete", "team-delete"),
    new="team-new",
    detail="team",
    fields=("name",),
    service=unpacked(create_team),
    context=lambda request: {"rows": teams()},
)


@needs(VIEW)
def team_page(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show a team's members and applications; admins can choose the members."""
    row = TEAMS.get(request.user, name)
    context = {
        "team": row,
        "members": {user.pk for user in row.members.all()},
        "people": User.objects.order_by("username"),
        "applications": row.applications.filter(archived_at=None).order_by("name"),
        "tokens": tokens_of_team(row),
    }
    return render(request, "access/team.html", context)


@needs(ADMINISTER, "POST")
def change_team(request: HttpRequest, name: str) -> HttpResponseBase:
    """Replace a team's members with the selected users."""
    row = TEAMS.get(request.user, name)
    try:
        set_members(row, members=request.POST.getlist("member"), **actor_and_now(request))
        messages.success(request, f"The members of {name} were saved.")
    except HeadgateError as error:
        return refused(request, error, reverse("team", args=[name]))
    return redirect("team", name)


@needs(ADMINISTER, "POST")
def give_application(request: HttpRequest, name: str) -> HttpResponseBase:
    """Assign an application to the chosen team; "" opens it to everyone."""
    row = application(name)
    chosen = request.POST.get("team", "").strip()
    team = team_named(chosen) if chosen else None
    give = partial(rights.give_application, application=row, team=team, **actor_and_now(request))
    said = (
        f"{name} belongs to team {team.name}." if team else (f"{name} no longer belongs to a team.")
    )
    return answered(request, give, said, reverse("application", args=[name]))


# --- roles of groups ----------------------------------------------------------------------

_NEXT_SIGN_IN = "Members of {row.group} get the {row.role} role at their next sign-in."

GROUPS = AdminPage(
    GROUP_ROLES,
    "user-groups",
    "settings/groups/",
    "access/group_roles.html",
    added=_NEXT_SIGN_IN,
    conflict="group",
    service=unpacked(add_group_role),
    context=lambda request: {
        "roles": [(role.value, ROLE_WORDS[role]) for role in ORDER],
        "issuer": settings.OIDC_ISSUER,
        "claim": settings.OIDC_GROUPS_CLAIM,
    },
)


@needs(ADMINISTER, "POST")
def change_group(request: HttpRequest, row_id: int) -> HttpResponseBase:
    """Change the role in a group's row, or remove the row."""
    row = GROUP_ROLES.get(request.user, row_id)
    done = _NEXT_SIGN_IN
    try:
        if request.POST.get("do") == "remove":
            remove_group_role(row, **actor_and_now(request))
            done = "Members of {row.group} lose this role at their next sign-in."
        else:
            change_group_role(row, role=request.POST.get("role", ""), **actor_and_now(request))
    except HeadgateError as error:
        return refused(request, error, reverse("user-groups"))
    messages.success(request, done.format(row=row))
    return redirect("user-groups")


# --- tokens -------------------------------------------------------------------------------

#: What each scope lets a token do, within the rights of the token's user.
SCOPE_WORDS = {
    Scope.READ: "can view everything",
    Scope.OPERATE: "can start, stop and restart queries, and resolve failures",
    Scope.AUTHOR: "can also change definitions",
    Scope.ADMIN: "can do everything that an admin can",
}


def _token_form(typed: Typed) -> dict[str, Any]:
    return {
        "user": typed["owner"],
        "name": typed["name"],
        "days": whole(typed["days"]) or 0,
        "scope": typed["scope"] or DEFAULT_SCOPE,
        "team": typed["team"],
        "applications": typed["applications"].replace(",", " ").split(),
    }


TOKEN_LIST = AdminPage(
    TOKENS,
    "tokens",
    "settings/tokens/",
    "console/settings/tokens.html",
    added="",  # its text is shown instead
    removed="Token {row.name} was revoked.",
    remove=("revoke", "token-revoke"),
    fields=("owner", "name", "days", "scope", "team", "applications"),
    form=_token_form,
    context=lambda request: {
        "days": DEFAULT_DAYS,
        "longest": LONGEST_DAYS,
        "owners": [one for one in people() if one.user.is_active and one.role],
        "tokens": [(row, limits_text(row)) for row in TOKENS.rows(request.user)],
        "scopes": list(SCOPE_WORDS.items()),
        "scope": DEFAULT_SCOPE,
        "teams": list(teams()),
    },
)


# --- users --------------------------------------------------------------------------------


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
                username=context["username"], role=context["given"], **actor_and_now(request)
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
            password = accounts.reset_password(user=user, **actor_and_now(request))
            return _users(request, {"made": user, "password": password, "given": Role.VIEWER})
        if act == "grants":
            set_grants(
                user=user,
                all_teams="all_teams" in request.POST,
                write_python="write_python" in request.POST,
                **actor_and_now(request),
            )
            done = "now has the selected rights"
        elif act in ("shut-out", "let-in"):
            accounts.set_active(user=user, active=act == "let-in", **actor_and_now(request))
            done = "is active again" if act == "let-in" else "is deactivated"
        elif act == "sign-out":
            ended = end_sessions(user=user, **actor_and_now(request))
            done = f"is signed out of {ended} browser{'' if ended == 1 else 's'}"
        else:
            role = _role(request)
            accounts.set_role(user=user, role=role, **actor_and_now(request))
            done = f"now has the {role} role" if role else "no longer has a role"
        messages.success(request, f"{user.username} {done}.")
    except HeadgateError as error:
        return refused(request, error, reverse("users"))
    return redirect("users")


urlpatterns = [
    *TEAM_LIST.urlpatterns,
    path("settings/teams/<str:name>/", team_page, name="team"),
    path("settings/teams/<str:name>/members/", change_team, name="team-members"),
    path("applications/<str:name>/team/", give_application, name="application-team"),
    *GROUPS.urlpatterns,
    path("settings/groups/<int:row_id>/", change_group, name="user-group-change"),
    *TOKEN_LIST.urlpatterns,
    path("settings/users/", users, name="users"),
    path("settings/users/<int:user_id>/", change_user, name="user-change"),
]


_NEXT_START = "Running queries continue; their next start will be rejected."

SECRETS = AdminPage(
    BINDINGS,
    "secrets",
    "settings/secrets/",
    "secrets/list.html",
    added=(
        "{row.secret} is granted to {row.holder_kind} {row.holder}. "
        "Queries that were rejected without this grant can be started again."
    ),
    removed="{row.secret} is no longer granted to {row.holder_kind} {row.holder}. " + _NEXT_START,
    remove=("unbind", "secret-unbind"),
    form=lambda typed: {**typed, "hosts": typed["hosts"].splitlines()},
    context=lambda request: {
        "secrets": secrets(),
        "holders": holder_names(),
        "kinds": list(HolderKind),
    },
)
ROOTS = AdminPage(
    ALLOWED_PATHS,
    "allowed-paths",
    "settings/allowed-paths/",
    "secrets/allowed_paths.html",
    added=("{row.application} can use {row.root}. A running driver must be restarted to use it."),
    removed="{row.application} can no longer use {row.root}. " + _NEXT_START,
    remove=("take", "allowed-path-take"),
    context=lambda request: {
        "for_all": settings.ALLOWED_PATHS,
        "proposals": proposals(),
        "applications": holder_names()["application"],
    },
)


def _catalog_form(typed: Typed) -> dict[str, Any]:
    lines = [line for line in typed["properties"].splitlines() if line.strip()]
    pairs = (line.partition("=") for line in lines)
    return {
        **typed,
        "properties": {key.strip(): value.strip() for key, _, value in pairs},
        "teams": typed["teams"].split(),
        "vended": bool(typed["vended"]),
    }


def _typed_catalog(request: HttpRequest) -> Typed:
    row = Catalog.objects.filter(name=request.GET.get("change", "").replace("\x00", "")).first()
    if row is None:
        return {}
    typed = {name: str(getattr(row, name)) for name in _CATALOG_FIELDS[:-1]}
    typed["properties"] = "\n".join(f"{key} = {value}" for key, value in row.properties.items())
    typed["teams"] = "\n".join(team.name for team in row.teams.all())
    return typed | {"vended": "on" if row.vended else "", "change": row.name}


def _save_catalog(raw: dict[str, Any], **by: Any) -> Catalog:
    if name := raw.pop("change"):
        del raw["name"]
        return change_catalog(CATALOGS.get(None, name), raw, **by)
    return declare_catalog(raw, **by)


_CATALOG_FIELDS = (*CatalogForm.model_fields, "change")
CATALOG_LIST = AdminPage(
    CATALOGS,
    "catalogs",
    "settings/catalogs/",
    "secrets/catalogs.html",
    added="Catalog {row.name} is saved. A running driver must be restarted to use it.",
    removed="Catalog {row.name} is deleted.",
    remove=("delete", "catalog-delete"),
    fields=_CATALOG_FIELDS,
    form=_catalog_form,
    service=_save_catalog,
    filled=_typed_catalog,
    context=lambda request: {"types": list(CatalogType), "auths": list(CatalogAuth)},
)

urlpatterns += [*SECRETS.urlpatterns, *ROOTS.urlpatterns, *CATALOG_LIST.urlpatterns]


urlpatterns += AdminPage(
    GIT_HOSTS,
    "code-hosts",
    "settings/code-hosts/",
    "code/hosts.html",
    added="Definitions can use code from {row.host}.",
    removed=("Code is no longer fetched from {row.host}. Code that was already fetched is kept."),
    remove=("take", "code-host-take"),
).urlpatterns
