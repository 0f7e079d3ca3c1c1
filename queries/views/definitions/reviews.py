"""Review a change before it is saved, and answer single questions about a definition.

The page contains the revision number from which editing began (`base`) and a digest of the change
that was shown; an attempt to save a different change shows that change first.
"""

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml
from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse

from headgate_ground.masking import mask
from queries.domain.definitions import parsing
from queries.domain.definitions.labels import labels_text, read_labels
from queries.domain.definitions.spec import Effect, strongest
from queries.domain.errors import Invalid
from queries.domain.readings import counted
from queries.domain.sparks import FORMATS
from queries.models.alerts import AlertRule
from queries.models.applications import Application, ApplicationRevision
from queries.models.definitions import Query, QueryRevision
from queries.roles import ADMINISTER, DEFINE
from queries.selectors.code import Asking, asking
from queries.selectors.definitions import definitions
from queries.selectors.manifests import managed_of
from queries.selectors.supervision import applications
from queries.selectors.supervision.applications import application_detail
from queries.services.definitions.rights import relabel
from queries.services.manifests.ownership import release
from queries.services.supervision.application_operations import answer_script
from queries.views.console.errors import answered
from queries.views.console.shell import actor_and_now, needs, next_address

#: The display order of a definition's fields, regardless of their order in the JSON.
_ORDER = (
    "kind sources tables sql function params sink trigger spark driver master memory "
    "scheduler_mode failure_scope python_path connectors listeners env pool conf name format "
    "schema options"
)
_PLACES = {key: place for place, key in enumerate(_ORDER.split())}
#: Unchanged lines shown around a change.
CONTEXT_LINES = 3


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a diff: its kind, and its line number on each side."""

    kind: str  # "same" | "added" | "removed" | "skipped"
    before: int | None
    after: int | None
    text: str


class _Readable(yaml.SafeDumper):
    """YAML with block style for text, so that SQL is shown as written."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Readable.add_representer(str, _text)


def readable(spec: Mapping[str, Any]) -> str:
    """Return a definition as YAML, in display order, without empty fields."""
    return yaml.dump(_tidy(spec), Dumper=_Readable, sort_keys=False, allow_unicode=True, width=100)


def _tidy(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {key: _tidy(value[key]) for key in sorted(value, key=_place)}
        return {key: held for key, held in kept.items() if held not in ("", None, [], {})}
    if isinstance(value, list | tuple):
        return [_tidy(held) for held in value]
    if isinstance(value, str):  # YAML's block style cannot represent spaces at the end of a line
        return "\n".join(line.rstrip().expandtabs(4) for line in value.strip().splitlines())
    return value


def _place(key: str) -> int:
    return _PLACES.get(key, len(_PLACES))


def changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[DiffLine]:
    """Return the lines that differ, with some context; empty if there are none."""
    old = readable(before).splitlines() if before else []
    new = readable(after).splitlines()
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    lines: list[DiffLine] = []
    end = 0
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        start = group[0][1]
        if start > end:
            lines.append(_skipped(start - end))
        end = group[-1][2]
        for tag, i1, i2, j1, j2 in group:
            lines += _block(tag, old[i1:i2], new[j1:j2], i1 + 1, j1 + 1)
    if lines and end < len(old):
        lines.append(_skipped(len(old) - end))
    return lines


def _skipped(count: int) -> DiffLine:
    return DiffLine("skipped", None, None, counted(count, "unchanged line"))


def _block(tag: str, old: list[str], new: list[str], i: int, j: int) -> list[DiffLine]:
    if tag == "equal":
        return [DiffLine("same", i + k, j + k, line) for k, line in enumerate(old)]
    removed = [DiffLine("removed", i + k, None, line) for k, line in enumerate(old)]
    added = [DiffLine("added", None, j + k, line) for k, line in enumerate(new)]
    return removed + added


Revision = QueryRevision | ApplicationRevision

#: What a change requires, in the review's words.
TAKES = {
    Effect.NONE: "Takes effect when saved; nothing restarts.",
    Effect.QUERY: "Takes effect after a restart of the query.",
    Effect.DRIVER: "Takes effect after a restart of the application, which replaces its driver.",
    Effect.CHECKPOINT: (
        "The checkpoint keeps the original value; changing {} requires a new checkpoint (a reset)."
    ),
}

#: For settings that a checkpoint does not keep, but that decide how it is written.
FORMAT = (
    "{} changes how checkpoints are written: a checkpoint written with another value may not "
    "continue. Try it in a preflight, or reset the query."
)

Parse = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Review:
    """What saving would change, and whether another user has saved in the meantime."""

    base: Revision  # the revision from which editing began
    newest: Revision
    digest: str
    lines: list[DiffLine]  # from the newest revision to the input
    theirs: list[DiffLine]  # from base to newest: what another user has saved
    seen: bool  # this exact change has already been shown
    effects: dict[str, Effect]  # the fields that would change, with the effect of each

    @property
    def stale(self) -> bool:
        """Return whether another user has saved since editing began."""
        return self.base.number != self.newest.number

    @property
    def takes(self) -> str:
        """Return the requirements for a change to take effect, and its effect on checkpoints."""
        formats = [name for name in self.effects if name.removeprefix("conf.") in FORMATS]
        said = f" {FORMAT.format(', '.join(formats))}" if formats else ""
        return self._takes + said

    @property
    def _takes(self) -> str:
        if (effect := strongest(self.effects)) is not Effect.CHECKPOINT:
            return TAKES[effect]
        kept = ", ".join(name for name, each in self.effects.items() if each is effect)
        rest = strongest({name: one for name, one in self.effects.items() if one is not effect})
        return f"{TAKES[effect].format(kept)} {TAKES[rest] if rest else ''}".strip()

    @property
    def may_save(self) -> bool:
        """Return whether to save: the change was shown, is not empty, and no one saved since."""
        return self.seen and not self.stale and bool(self.lines)


def review(
    data: QueryDict, revisions: tuple[Any, ...], spec: Mapping[str, Any], *, again: bool = False
) -> Review:
    """Return the review of a spec against the revisions (newest first).

    `again` makes the newest revision the new base: the user has seen the others' changes.
    """
    newest = revisions[0]
    number = data.get("base", "")
    base = next((row for row in revisions if str(row.number) == number), newest)
    base = newest if again else base
    own = isinstance(newest, ApplicationRevision)
    parse: Parse = parsing.parse_application if own else parsing.parse_query
    after = normal(parse, spec)
    digest = hashlib.sha256(json.dumps([newest.number, after], sort_keys=True).encode()).hexdigest()
    return Review(
        base=base,
        newest=newest,
        digest=digest,
        lines=_changes(parse, newest.spec, after),
        theirs=_changes(parse, base.spec, newest.spec),
        seen=data.get("reviewed") == digest,
        effects=(parsing.application_changes if own else parsing.query_changes)(newest.spec, after),
    )


def _changes(parse: Parse, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[DiffLine]:
    return changes(mask(normal(parse, before)), mask(normal(parse, after)))


def normal(parse: Parse, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with its defaults filled in, so that only the meaning is compared."""
    try:
        return parsing.as_json(parse(spec))
    except Invalid:  # an old form: compare it unchanged
        return dict(spec)


@needs(DEFINE, "GET", "POST")
def query_labels(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show a query's own labels for editing; save them."""
    query = definitions.query(name)
    return _labels(request, query, "query", {"inherited": query.application.labels})


@needs(DEFINE, "GET", "POST")
def application_labels(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show an application's labels for editing; save them."""
    return _labels(request, applications.application(name), "application", {})


def _labels(
    request: HttpRequest, row: Query | Application, kind: str, more: dict[str, Any]
) -> HttpResponseBase:
    context = {**more, "row": row, "kind": kind, "typed": labels_text(row.labels)}
    if request.method == "GET":
        return render(request, "definitions/labels.html", context)
    context["typed"] = request.POST.get("labels", "")
    try:
        relabel(row, read_labels(str(context["typed"])), **actor_and_now(request))
    except Invalid as error:
        context["problems"] = error.problems
        return render(request, "definitions/labels.html", context, status=422)
    messages.success(request, f"The labels of {row.name} were saved. Nothing is restarted.")
    return redirect(kind, row.name)


urlpatterns = [
    path("queries/<query:name>/labels/", query_labels, name="query-labels"),
    path("applications/<str:name>/labels/", application_labels, name="application-labels"),
]


@needs(DEFINE, "GET", "POST")
def release_query(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show what a release does; release a query on POST."""
    row = definitions.query(name)
    return _release(request, row, "query-release", reverse("query-definition", args=[name]))


@needs(DEFINE, "GET", "POST")
def release_application(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show what a release does; release an application on POST."""
    row = applications.application(name)
    return _release(request, row, "application-release", reverse("application", args=[name]))


@needs(ADMINISTER, "GET", "POST")
def release_rule(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show what a release does; release an alert rule on POST."""
    row = get_object_or_404(AlertRule, name=name)
    return _release(request, row, "alert-rule-release", reverse("alert-rule", args=[name]))


def _release(request: HttpRequest, row: Any, address: str, back: str) -> HttpResponseBase:
    back = next_address(request, back)
    managed = managed_of(row)
    if request.method == "POST":
        perform = partial(release, managed, **actor_and_now(request))
        return answered(request, perform, f"{row.name} no longer has an owner.", back)
    context = {
        "name": row.name,
        "what": f"Release {row.name} from {managed.owner if managed else 'its owner'}?",
        "consequences": [
            "Its file no longer controls it: edits are not drift, and pruning skips it.",
            "The object itself does not change, and running queries continue.",
            "The next apply that includes this object restores its owner.",
        ],
        "action": reverse(address, args=[row.name]),
        "back": back,
    }
    return render(request, "manifests/release.html", context)


urlpatterns += [
    path("queries/<query:name>/release/", release_query, name="query-release"),
    path("applications/<str:name>/release/", release_application, name="application-release"),
    path("alerts/rules/<str:name>/release/", release_rule, name="alert-rule-release"),
]


@needs(DEFINE, "GET", "POST")
def question(request: HttpRequest, name: str) -> HttpResponseBase:
    """Ask which query the new one is; process the answer on POST."""
    detail = application_detail(name)
    back = reverse("application", args=[name])
    if request.method == "POST":
        sent = {key: request.POST.get(key, "") for key in ("identity", "same_as")}
        perform = partial(
            answer_script, application=detail.application, **(sent | actor_and_now(request))
        )
        same = f"It is {sent['same_as']}." if sent["same_as"] else "It is another query."
        return answered(request, perform, f"{same} Script {name} continues.", back)
    pending = asking(detail.script)
    if pending is None:
        messages.info(request, f"Script {name} is not waiting for an answer.")
        return redirect(back)
    context = {
        "application": detail.application,
        "what": f"Which query is {pending.query}?",
        "consequences": [
            "The script starts this query, but has not started queries that it started before: "
            f"{', '.join(pending.missing)}.",
            "The query has not been started. The script starts again once you have answered.",
        ],
        "fields": [("identity", pending.identity)],
        "choices": ("same_as", _choices(pending)),
        "action": reverse("application-question", args=[name]),
        "back": back,
    }
    return render(request, "scripts/question.html", context)


def _choices(pending: Asking) -> list[tuple[str, str, str]]:
    same = "It continues from that checkpoint and keeps its history."
    other = "It begins with its own checkpoint. The previous queries are kept unchanged."
    return [
        *((name, f"The same as {name}", same) for name in pending.missing),
        ("", "Another query", other),
    ]


urlpatterns += [
    path("applications/<str:name>/question/", question, name="application-question"),
]
