"""Find anything by a few letters: queries and their actions, failures, runs, pages."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse

from queries.domain.labels import state_label, verb_label
from queries.domain.states import PLAIN_VERBS, verbs_of
from queries.roles import DEFINE, OPERATE, VIEW, may
from queries.selectors import visible
from queries.selectors.console import SearchMatches, find, named
from queries.views.console.shell import navigation, needs

#: Actions are offered for at most this many queries.
ACTED_ON = 3
#: Maximum length of the search text: a line from an error.
LONGEST = 200


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result."""

    icon: str
    title: str
    address: str
    below: str = ""  # distinguishes it from others with the same name
    dialog: bool = False  # its page asks for confirmation


@dataclass(frozen=True, slots=True)
class SearchAction:
    """An action on a query, on a page that shows its consequences."""

    verb: str
    name: str  # name of the URL
    icon: str
    permission: str = VIEW
    dialog: bool = False


ACTS = (
    SearchAction("start", "query-start", "player-play", OPERATE, dialog=True),
    SearchAction("restart", "query-restart", "rotate-clockwise", OPERATE, dialog=True),
    SearchAction("stop", "query-stop", "player-stop", OPERATE, dialog=True),
    SearchAction("edit", "query-edit", "edit", DEFINE),
    SearchAction("log", "query-log", "file-text"),
    SearchAction("lag", "query-lag", "ripple"),
    SearchAction("failures", "query-failures", "alert-triangle"),
    SearchAction("runs", "query-runs", "history"),
    SearchAction("checkpoint", "query-checkpoint", "flag-3"),
    SearchAction("definition", "query-definition", "file-text"),
    SearchAction("activity", "query-activity", "activity"),
    SearchAction("snapshot", "query-snapshot", "archive", OPERATE),
    SearchAction("rewind", "query-rewind", "arrow-back-up", DEFINE),
    SearchAction("reset", "query-reset", "rotate-clockwise", DEFINE),
    SearchAction("clone", "query-clone", "copy", DEFINE),
    SearchAction("inspect", "query-x-ray", "search", DEFINE),
    SearchAction("labels", "query-labels", "tag", DEFINE),
    SearchAction("delete", "query-delete", "trash", DEFINE),
)
#: Pages missing from the navigation: label, URL name, and additional search words.
_PAGES = (
    ("Alert rules", "alert-rules", "routing escalation reminder"),
    ("Channels", "alert-channels", "mail slack webhook pagerduty"),
    ("Maintenance windows", "alert-maintenance", "silence planned"),
    ("New query", "query-new", "define create"),
    ("New application", "application-new", "define create"),
    ("API documentation", "api:docs", "rest openapi swagger"),
    ("Metrics", "metrics", "prometheus"),
    ("Documentation", "docs", "help guide manual reference"),
    ("Shortcuts", "shortcuts", "keyboard"),
)


@needs(VIEW)
def find_page(request: HttpRequest) -> HttpResponse:
    """Show the matches for the letters typed so far, or the list of pages if there are none."""
    text = " ".join(request.GET.get("q", "").replace("\x00", "").split())[:LONGEST]
    verb, rest = _verb(text)
    parts = [
        ("Actions", list(_acts(request.user, verb, rest))),
        *_rows(find(text)),
        ("Pages", list(_pages(request, text))),
    ]
    context = {"text": text, "parts": [(title, hits) for title, hits in parts if hits]}
    typing = "HX-Request" in request.headers  # the search box already exists: send only the results
    return render(request, f"console/shell/{'_find' if typing else 'find'}.html", context)


def _verb(text: str) -> tuple[str, str]:
    """Split a string into the beginning of a verb with which it starts, and the rest."""
    first, _, rest = text.lower().partition(" ")
    is_verb = any(act.verb.startswith(first) for act in ACTS)
    return (first, rest.strip()) if first and rest.strip() and is_verb else ("", text)


def _acts(user: User | AnonymousUser, verb: str, about: str) -> Iterator[Hit]:
    """Yield this verb's actions on matching queries; without a verb, all on the best match.

    Without a verb, a start, stop or restart is left out where it would change nothing.
    """
    if not about:
        return
    rows = named(visible.queries().select_related("application"), about)[: ACTED_ON if verb else 1]
    exact = [row for row in rows if verb or row.name.lower().startswith(about.lower())]
    for query in exact:
        can = verbs_of(query.desired, query.phase, query.phase_reason)
        useful = {action_name.removesuffix("-now") for action_name in can}
        for act in ACTS:
            if not verb and act.verb in PLAIN_VERBS - useful:
                continue
            if act.verb.startswith(verb) and may(user, act.permission, query.application):
                title = f"{act.verb.capitalize()} {query.name}{'…' if act.dialog else ''}"
                yield Hit(act.icon, title, reverse(act.name, args=[query.name]), dialog=act.dialog)


def _rows(matches: SearchMatches) -> Iterator[tuple[str, list[Hit]]]:
    yield (
        "Queries",
        [
            Hit("ripple", row.name, reverse("query", args=[row.name]), state_label(row.phase))
            for row in matches.queries
        ],
    )
    yield (
        "Applications",
        [
            Hit("stack-2", row.name, reverse("application", args=[row.name]))
            for row in matches.applications
        ],
    )
    yield (
        "Incidents",
        [
            Hit("bell", row.title, reverse("incident", args=[row.uuid]), "open")
            for row in matches.incidents
        ],
    )
    yield (
        "Failures",
        [
            Hit(
                "alert-triangle",
                row.title,
                reverse("failure-group", args=[row.pk]),
                f"{(row.query or row.application).name} · {state_label(row.status)}",
            )
            for row in matches.groups
        ],
    )
    yield (
        "Runs",
        [
            Hit("history", f"Run {row.pk}", reverse("run", args=[row.pk]), row.query.name)
            for row in matches.runs
        ],
    )
    yield (
        "Operations",
        [
            Hit(
                "clipboard-list",
                f"{verb_label(row.verb)} {row.subject}",
                reverse("operation", args=[row.uuid]),
                state_label(row.outcome) if row.outcome else "in progress",
            )
            for row in matches.operations
        ],
    )


def _pages(request: HttpRequest, text: str) -> Iterator[Hit]:
    lowered_text = text.lower()
    for group in navigation(request):
        for link in group["links"]:
            if lowered_text in link["entry"].label.lower():
                yield Hit(link["entry"].icon, link["entry"].label, link["address"])
    for label, name, more in _PAGES:
        if text and lowered_text in f"{label} {more}".lower():
            if name.endswith("-new") and not request.user.has_perm(DEFINE):
                continue
            yield Hit("file-text", label, reverse(name))


urlpatterns = [path("find/", find_page, name="find")]
