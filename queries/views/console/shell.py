"""The frame of every page, and who may open it."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.contrib.auth.models import User
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
    JsonResponse,
)
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.text import capfirst
from django.views.decorators.http import require_http_methods, require_POST

from listeners import selectors as heard
from queries.domain.definitions.labels import terms
from queries.domain.failures.crashes import CrashLoop
from queries.domain.readings import counted
from queries.domain.system import SystemHealth
from queries.roles import (
    ADMINISTER,
    DEFINE,
    OPERATE,
    VIEW,
    WRITE_PYTHON,
    author_rights,
    may,
    reach_of,
    role_of,
)
from queries.selectors.access import insist_at, reaches
from queries.selectors.alerts.incidents import open_incidents
from queries.selectors.console import names_of, open_failure_groups
from queries.selectors.failures.occurrences import crash_loops
from queries.selectors.supervision.query_filters import queries
from queries.services.system.health import system_health
from queries.views.console.fragments import Changes, Drawn, fragments

View = Callable[..., HttpResponseBase]


def needs(permission: str, *methods: str) -> Callable[[View], View]:
    """Admit users with the permission, for these methods (default: GET).

    Others get 403, anonymous users get the sign-in page, other methods 405. For operators' and
    authors' actions, the user must have the right to act on the URL's application.
    """

    def guard(view: View) -> View:
        @wraps(view)
        def reached(request: HttpRequest, *args: Any, **named: Any) -> HttpResponseBase:
            insist_at(request.user, permission, request.resolver_match)
            return view(request, *args, **named)

        allowed: Any = permission_required(permission, raise_exception=True)(reached)
        guarded: View = require_http_methods([*(methods or ["GET"])])(login_required(allowed))
        return guarded

    return guard


def user_of(request: HttpRequest) -> User:
    """Return the signed-in user; use only behind `needs`, which admits only signed-in users."""
    assert isinstance(request.user, User), "a guard has admitted a user who is not signed in"
    return request.user


def actor_and_now(request: HttpRequest) -> dict[str, Any]:
    """Return the acting user and the time, as arguments for services."""
    return {"actor": request.user.get_username(), "now": timezone.now()}


def author(request: HttpRequest) -> dict[str, Any]:
    """Return the user, the time, and whether the user may write Python, for the catalog."""
    return actor_and_now(request) | {"rights": author_rights(request.user)}


def writes_python(request: HttpRequest) -> bool:
    """Return whether the user is allowed to load code into drivers."""
    return may(request.user, WRITE_PYTHON)


def system(request: HttpRequest) -> dict[str, Any]:
    """Return `system`, the system's own health, computed only if a template uses it."""

    def look() -> SystemHealth:
        return system_health(timezone.now())

    return {"system": SimpleLazyObject(look)}


#: Older losses are no longer shown in the banner, only on the query's page.
DROPS_SHOWN_FOR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class BannerLine:
    """One line of the banner: its subject, and its problems."""

    tone: str
    items: tuple[tuple[str, str], ...]


def banner(now: datetime) -> list[BannerLine]:
    """Return the lines to show, worst first; empty if everything is fine."""
    health = system_health(now)
    parts = tuple((capfirst(part.name), part.sentence) for part in health.problems)
    lines = [BannerLine("bad", parts)] if parts else []
    if any(part.name == "database" for part in health.problems):
        return lines
    return lines + _crash_loops(now) + _drops(now)


def _crash_loops(now: datetime) -> list[BannerLine]:
    """Return the queries that fail repeatedly: one incident for each, or one per driver."""
    loops = crash_loops(now=now)
    names = names_of(loops)
    together: dict[CrashLoop, list[str]] = defaultdict(list)
    for query, loop in loops.items():
        together[loop].append(names[query])
    items = tuple(
        (
            f"{', '.join(sorted(who))}: crash loop",
            f"{loop.count:,} failures {loop.first_at:%H:%M}–{loop.last_at:%H:%M} UTC. "
            "Still retrying, with backoff.",
        )
        for loop, who in sorted(together.items(), key=lambda pair: pair[0].first_at)
    )
    return [BannerLine("bad", items)] if items else []


def _drops(now: datetime) -> list[BannerLine]:
    """Return how many events Spark dropped, and when, per queue."""
    counted: dict[str, int] = defaultdict(int)
    since: dict[str, datetime] = {}
    until: dict[str, datetime] = {}
    drivers: dict[str, set[int]] = defaultdict(set)
    for drop in heard.drops_since(now - DROPS_SHOWN_FOR):
        queue = drop["queue"]
        counted[queue] += drop["count"]
        drivers[queue].add(drop["driver"])
        since[queue] = min(since.get(queue, drop["since"]), drop["since"])
        until[queue] = max(until.get(queue, drop["until"]), drop["until"])
    return [
        BannerLine(
            "warn",
            (
                (
                    f"{count:,} {_LOST.get(queue, f'events dropped from {queue}')}",
                    f"{since[queue]:%H:%M}–{until[queue]:%H:%M} UTC. "
                    f"{_meaning(queue, drivers[queue])} {_repairs(now, drivers[queue])}",
                ),
            ),
        )
        for queue, count in sorted(counted.items())
    ]


def _meaning(queue: str, drivers: set[int]) -> str:
    driver_telemetry = heard.telemetry(drivers).values()
    if queue == "streams" and any(
        telemetry.heartbeat.mode == "fallback" for telemetry in driver_telemetry
    ):
        return "No private queue is available, so Headgate uses this queue too."
    return _MEANING.get(queue, "")


def _repairs(now: datetime, drivers: set[int]) -> str:
    missing, repaired = heard.holes_since(now - DROPS_SHOWN_FOR, drivers)
    if not missing:
        return "No batches are missing."
    return f"{counted(missing, 'batch,batches')} missing, {repaired:,} of them repaired."


_LOST = {
    "streams": "events dropped from Spark's own listener queue",
    "ours": "Headgate events dropped by Spark's listener bus",
    "outbox": "events dropped: a driver's spool is full",
}
_MEANING = {
    "streams": "Your own listeners missed them; Headgate did not.",
    "outbox": "Free disk space where the drivers write, then check each query's page.",
}


@fragments("system", hears=("system", "driver", "group", "incident"))
def draw_banner(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the banner, and the counts of open failures and incidents in the navigation."""
    context = {"count": open_failure_groups(), "banner": banner(now), "now": now}
    yield "open-failures", render_to_string("console/shell/_open_failures.html", context)
    yield "open-incidents", render_to_string("alerts/_open.html", {"count": open_incidents()})
    yield "system", render_to_string("console/shell/_banner.html", context)


THEMES = ("light", "dark")
THEME_AGE_S = 365 * 86400


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """One entry in the navigation."""

    label: str
    name: str  # name of the URL
    icon: str
    below: tuple[str, ...]  # prefixes of the URL names that belong to it


#: What people look at daily.
_MONITOR = (
    NavigationEntry("Overview", "overview", "layout-dashboard", ("overview",)),
    NavigationEntry("Queries", "queries", "ripple", ("quer",)),
    NavigationEntry("Alerts", "alerts", "bell", ("alert", "incident")),
    NavigationEntry("Failures", "failures", "alert-triangle", ("failure",)),
    NavigationEntry("Runs", "runs", "history", ("run",)),
    NavigationEntry("Schedules", "schedules", "clock", ("schedules",)),
)
#: What people set up.
_BUILD = (
    NavigationEntry("Applications", "applications", "stack-2", ("application", "pool")),
    NavigationEntry("Deploys", "deploys", "arrow-up", ("deploy",)),
    NavigationEntry("Lineage", "lineage", "git-compare", ("lineage",)),
    NavigationEntry("Checkpoints", "checkpoints", "flag-3", ("checkpoint",)),
    NavigationEntry("Connectors", "connectors", "puzzle", ("connector",)),
)
#: What administrators maintain, and what everyone can look up of it.
_SETTINGS = (
    NavigationEntry("Audit", "audit", "clipboard-list", ("audit",)),
    NavigationEntry("Tokens", "tokens", "key", ("token",)),
    NavigationEntry("Teams", "teams", "stack", ("team",)),
    NavigationEntry("Users", "users", "users", ("user",)),
    NavigationEntry("Secrets", "secrets", "lock", ("secret",)),
    NavigationEntry("Allowed paths", "allowed-paths", "database", ("allowed-path",)),
    NavigationEntry("Catalogs", "catalogs", "archive", ("catalog",)),
    NavigationEntry("Git hosts", "code-hosts", "code", ("code-host",)),
    NavigationEntry("System", "system", "activity", ("system",)),
)
_ENTRIES = {"Monitor": _MONITOR, "Build": _BUILD, "Settings": _SETTINGS}
#: Counts shown next to entries.
_COUNTS = {"alerts": open_incidents, "failures": open_failure_groups}
#: Entries that require a permission.
_NEEDED = dict.fromkeys(("users", "secrets", "allowed-paths", "catalogs", "code-hosts"), ADMINISTER)


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
    """Return the groups of the navigation, with the entries that the user can open."""
    groups = []
    for label, entries in _ENTRIES.items():
        links = [_link(request, entry) for entry in entries if _can_open(request, entry)]
        if links:
            groups.append({"label": label, "id": label.lower(), "links": links})
    return groups


def _can_open(request: HttpRequest, entry: NavigationEntry) -> bool:
    needed = _NEEDED.get(entry.name)
    return needed is None or request.user.has_perm(needed)


def _link(request: HttpRequest, entry: NavigationEntry) -> dict[str, Any]:
    url_name = str(request.resolver_match.url_name or "") if request.resolver_match else ""
    count = _COUNTS[entry.name]() if entry.name in _COUNTS else 0
    return {
        "entry": entry,
        "address": reverse(entry.name),
        "active": url_name.startswith(entry.below),
        "count": count,
    }


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
    """Return whether a script shows the response and leaves the form unchanged: ours, or htmx."""
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
