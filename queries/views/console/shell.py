"""The frame around every page: navigation, theme, search, and the user."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from queries.domain.definitions.selection import terms
from queries.roles import ADMINISTER, DEFINE, OPERATE, VIEW, reach_of, role_of
from queries.selectors.access.insisting import reaches
from queries.selectors.alerts.incidents import open_incidents
from queries.selectors.console.badges import open_failure_groups
from queries.selectors.supervision.query_filters import queries
from queries.views.console.banner import banner
from queries.views.console.guard import needs

THEMES = ("light", "dark")
THEME_AGE_S = 365 * 86400


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """One entry in the navigation."""

    label: str
    name: str  # name of the URL
    icon: str
    below: tuple[str, ...]  # prefixes of the URL names that belong to it


_ENTRIES = (
    NavigationEntry("Overview", "overview", "layout-dashboard", ("overview",)),
    NavigationEntry("Queries", "queries", "ripple", ("quer",)),
    NavigationEntry("Lineage", "lineage", "git-compare", ("lineage",)),
    NavigationEntry("Applications", "applications", "stack-2", ("application", "pool")),
    NavigationEntry("Deploys", "deploys", "arrow-up", ("deploy",)),
    NavigationEntry("Alerts", "alerts", "bell", ("alert", "incident")),
    NavigationEntry("Failures", "failures", "alert-triangle", ("failure",)),
    NavigationEntry("Runs", "runs", "history", ("run",)),
    NavigationEntry("Schedules", "schedules", "clock", ("schedules",)),
    NavigationEntry("Checkpoints", "checkpoints", "flag-3", ("checkpoint",)),
    NavigationEntry("Connectors", "connectors", "puzzle", ("connector",)),
    NavigationEntry("Audit", "audit", "clipboard-list", ("audit",)),
    NavigationEntry("Tokens", "tokens", "key", ("token",)),
    NavigationEntry("Teams", "teams", "stack", ("team",)),
    NavigationEntry("Users", "users", "users", ("user",)),
    NavigationEntry("Secrets", "secrets", "lock", ("secret",)),
    NavigationEntry("Data roots", "data-roots", "database", ("data-root",)),
    NavigationEntry("Git hosts", "code-hosts", "code", ("code-host",)),
    NavigationEntry("System", "system", "activity", ("system",)),
)
#: Counts shown next to entries.
_COUNTS = {"alerts": open_incidents, "failures": open_failure_groups}
#: Entries that require a permission.
_NEEDED = dict.fromkeys(("users", "secrets", "data-roots", "code-hosts"), ADMINISTER)


def shell(request: HttpRequest) -> dict[str, Any]:
    """Return the context that base.html needs on every page (a context processor)."""
    user = getattr(request, "user", None)
    theme = request.COOKIES.get("theme", "")
    context: dict[str, Any] = {"theme": theme if theme in THEMES else ""}
    if user is None or not user.is_authenticated:
        return context
    role = role_of(user)
    reachable = reaches(user, request.resolver_match) if user.has_perm(OPERATE) else False
    return context | {
        "role": role,
        "can_view": user.has_perm(VIEW),
        # On a page about one application, these are the user's rights for that application.
        "can_operate": reachable,
        "can_define": reachable and user.has_perm(DEFINE),
        # In a list, the filter `within` uses it for each row's application.
        "reach": SimpleLazyObject(lambda: reach_of(user)),
        "can_administer": user.has_perm(ADMINISTER),
        "navigation": navigation(request) if user.has_perm(VIEW) else [],
        "banner": SimpleLazyObject(lambda: banner(timezone.now())),
    }


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    url_name = request.resolver_match.url_name if request.resolver_match else ""
    entries = []
    for entry in _ENTRIES:
        needed = _NEEDED.get(entry.name)
        if needed and not request.user.has_perm(needed):
            continue
        active = bool(url_name) and str(url_name).startswith(entry.below)
        count = _COUNTS[entry.name]() if entry.name in _COUNTS else 0
        link = {"entry": entry, "address": reverse(entry.name), "active": active, "count": count}
        entries.append(link)
    return entries


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Store the chosen theme in a cookie; an unknown theme resets it to the system theme."""
    response = HttpResponseRedirect(next_address(request))
    theme = request.POST.get("theme", "")
    if theme in THEMES:
        response.set_cookie("theme", theme, max_age=THEME_AGE_S, samesite="Lax")
    else:
        response.delete_cookie("theme", samesite="Lax")
    return response


def next_address(request: HttpRequest, default: str = "/") -> str:
    """Return the URL to go back to: the form's `next` if it is one of ours."""
    address = request.POST.get("next") or request.GET.get("next") or ""
    return address if is_ours(request, address) else default


def is_ours(request: HttpRequest, address: str) -> bool:
    """Return whether a URL in a request leads to this console."""
    return url_has_allowed_host_and_scheme(
        address, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )


def redirect_with_message(request: HttpRequest, text: str, address: str) -> HttpResponse:
    """Report the result of an action: as JSON to our scripts, otherwise on the next page."""
    if wants_json(request):
        return JsonResponse({"tone": "ok", "text": text})
    messages.success(request, text)
    return HttpResponseRedirect(address)


def redirect_with_error(request: HttpRequest, text: str, address: str) -> HttpResponse:
    """Report why an action was refused; show its confirmation at `address` again."""
    if wants_json(request):
        return JsonResponse({"tone": "bad", "text": text, "again": address})
    messages.error(request, text)
    return HttpResponseRedirect(address)


def wants_json(request: HttpRequest) -> bool:
    """Return whether the request comes from one of our scripts, which shows the response itself."""
    return request.headers.get("Accept") == "application/json"


def is_script(request: HttpRequest) -> bool:
    """Return whether a script shows the response and leaves the form as it is: ours, or htmx."""
    return wants_json(request) or (request.method == "POST" and "HX-Request" in request.headers)


@needs(VIEW)
def search(request: HttpRequest) -> HttpResponse:
    """Go to the query with exactly this name, otherwise to the list of similar ones."""
    text = request.GET.get("q", "").strip()
    if text and queries(terms(name=text), now=timezone.now()).exists():
        return redirect("query", name=text)
    query_string = f"?{urlencode({'q': text})}" if text else ""
    return redirect(reverse("queries") + query_string)


@needs(VIEW)
def shortcuts(request: HttpRequest) -> HttpResponse:
    """Show the keyboard shortcuts, and the switch that turns them off."""
    return render(request, "console/shell/shortcuts.html")


urlpatterns = [
    path("search/", search, name="search"),
    path("theme/", set_theme, name="theme"),
    path("shortcuts/", shortcuts, name="shortcuts"),
]
