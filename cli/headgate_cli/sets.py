"""The options that commands share, the set that they send, and how a response is printed."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from headgate_cli import files
from headgate_cli.files import Values, upload_code
from headgate_cli.kinds import kind_named
from headgate_cli.output import (
    OutputForm,
    form_named,
    forms_named,
    paint,
    plain,
    problem_lines,
    refused,
    write,
)
from headgate_cli.server import Json, Server, chosen


def query_name(text: str) -> str:
    """Return a query's name; accepts the output of `-o name` too."""
    return kind_named("query").bare(text)


def application_name(text: str) -> str:
    """Return an application's name; accepts the output of `-o name` too."""
    return kind_named("application").bare(text)


def bare_name(text: str) -> str:
    """Return a query's or application's name; accepts the output of `-o name` too."""
    return application_name(query_name(text))


def team_name(text: str) -> str:
    """Return a team's name; accepts the output of `-o name` too."""
    return kind_named("team").bare(text)


def form_of_object(text: str | OutputForm) -> OutputForm:
    """Return the format with a name; `wide` is the table, which has no more columns here."""
    form = form_named(text)
    return OutputForm.TABLE if form is OutputForm.WIDE else form


_OUTPUT: Any = {
    "metavar": "FORMAT",
    "autocompletion": forms_named,
    "help": "table, json, yaml, name or jsonpath=TEMPLATE.",
}
Output = Annotated[OutputForm, typer.Option("--output", "-o", parser=form_of_object, **_OUTPUT)]
ListOutput = Annotated[
    OutputForm,
    typer.Option(
        "--output",
        "-o",
        parser=form_named,
        **_OUTPUT | {"help": "table, wide, json, yaml, name or jsonpath=TEMPLATE."},
    ),
]
Timeout = Annotated[str, typer.Option("--timeout", help="Maximum wait: 90s, 10m, 2h.")]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until the operation ends, and return its outcome.")
]
QueryName = Annotated[str, typer.Argument(parser=query_name, help="Query name.")]
QueryNames = Annotated[list[str] | None, typer.Argument(parser=query_name, help="Query names.")]
OfScript = Annotated[
    str,
    typer.Option(
        "--application",
        parser=application_name,
        help="An application that runs a script, instead of a query.",
    ),
]
Files = Annotated[
    list[str],
    typer.Option(
        "--file", "-f", help="A manifest, a folder of manifests, or - for stdin; repeatable."
    ),
]


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """The options given before the command."""

    context: str = ""
    ca: str = ""


def server(context: typer.Context) -> Server:
    """Return the connection to the chosen installation."""
    options: GlobalOptions = context.obj
    return Server(chosen(options.context, options.ca))


ValueFiles = Annotated[
    list[str], typer.Option("--values", help="Values file for an environment; repeatable.")
]
Sets = Annotated[list[str], typer.Option("--set", help="One value, NAME=VALUE; repeatable.")]
Owner = Annotated[
    str,
    typer.Option(
        envvar="HEADGATE_OWNER", help="Owner of the objects; default: the repository's name."
    ),
]
Prune = Annotated[
    bool,
    typer.Option("--prune", help="Remove the owner's objects that are no longer in the files."),
]
PruneRunning = Annotated[
    bool,
    typer.Option(
        "--prune-running", help="Stop running queries first, so that they can be removed."
    ),
]

AcceptStateChange = Annotated[
    bool,
    typer.Option(
        "--accept-state-change",
        help="Start queries even if their existing state changes meaning.",
    ),
]

RequireChecked = Annotated[
    bool,
    typer.Option(
        "--require-checked",
        help="Reject queries whose SQL could not be checked, instead of saving them unchecked.",
    ),
]

PlanFile = Annotated[
    str,
    typer.Option(
        "--plan",
        help="Output of `diff -o json`: use the commits to which it resolved branches.",
    ),
]

_COLOURS = {
    "created": "green",
    "changed": "yellow",
    "pruned": "red",
    "to-be-pruned": "red",
    "refused": "red",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A set as given on the command line: each field is an option of the commands for sets."""

    names: Files
    value_files: ValueFiles = field(default_factory=list)
    values: Sets = field(default_factory=list)
    owner: Owner = ""
    prune: Prune = False
    prune_running: PruneRunning = False
    accept_state_change: AcceptStateChange = False
    require_checked: RequireChecked = False
    plan: PlanFile = ""

    def body(self, server: Server) -> Json:
        """Return the body of an apply without `dry_run`, uploading code next to manifests."""
        manifests = files.read(self.names)
        values = Values()
        for name in self.value_files:
            values.take_file(name)
        for text in self.values:
            values.take(text)
        owner = files.owner_of(self.owner, manifests)
        files.warn_of_edits(manifests)
        upload_code(server, manifests.files)
        return {
            "owner": owner,
            "source": manifests.source(),
            "values": values.by_name,
            "manifests": [{"path": file.path, "text": file.text} for file in manifests.files],
            "prune": self.prune,
            "prune_running": self.prune_running,
            # An earlier server does not know these fields.
            **({"accept_state_change": True} if self.accept_state_change else {}),
            **({"require_checked": True} if self.require_checked else {}),
            **({"resolved": _resolved(self.plan)} if self.plan else {}),
        }


def takes_set(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of a `Request` in place of its parameter `request`."""
    hints, own = get_type_hints(Request, include_extras=True), signature(command)
    hints = {parameter.name: hints[parameter.name] for parameter in fields(Request)}
    empty: dict[str, Any] = {
        parameter.name: Parameter.empty
        if parameter.name == "names"
        else getattr(_NOTHING, parameter.name)
        for parameter in fields(Request)
    }
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=empty[name], annotation=hint)
        for name, hint in hints.items()
    ]
    others = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for name, parameter in own.parameters.items()
        if name != "request"
    ]

    @wraps(command)
    def run(**given: Any) -> int:
        request = Request(**{name: given.pop(name) for name in hints})
        return command(request=request, **given)

    run.__signature__ = own.replace(parameters=[*others[:1], *options, *others[1:]])  # type: ignore[attr-defined]
    annotations = {
        name: hint for name, hint in command.__annotations__.items() if name != "request"
    }
    run.__annotations__ = annotations | hints
    return run


_NOTHING = Request([])


def _resolved(plan: str) -> list[Json]:
    """Return the refs resolved by a dry run; raise `CommandEnded` for any other file."""
    try:
        resolved_objects: list[Json] = json.loads(Path(plan).read_text("utf-8"))["resolved"]
    except (OSError, ValueError, KeyError, TypeError):
        way_out = "Use a file written by `headgate diff -o json`."
        raise refused(f"{plan} is not a valid plan.", way_out) from None
    return resolved_objects


def differing(answer: Json) -> list[Json]:
    """Return the objects in a response whose outcome is not `unchanged`."""
    return [
        planned_object
        for planned_object in answer["objects"]
        if planned_object["outcome"] != "unchanged"
    ]


def show(answer: Json, *, values: bool) -> None:
    """Print the change to each object and, with `values`, each field before and after."""
    for planned_object in differing(answer):
        _show_object(planned_object, values=values)
    counts: dict[str, int] = {}
    for planned_object in answer["objects"]:
        counts[planned_object["outcome"]] = counts.get(planned_object["outcome"], 0) + 1
    for ref in answer.get("resolved", []):
        write(paint(f"{plain(ref['ref'])} of {plain(ref['git'])}: {ref['commit'][:12]}", ""))
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    write(paint(summary or "Nothing to apply.", ""))


def _show_object(planned_object: Json, *, values: bool) -> None:
    outcome = str(planned_object["outcome"])
    at = f"  ({planned_object['path']})" if planned_object.get("path") else ""
    takes = (
        f", takes a {planned_object['effect']}"
        if planned_object.get("effect") not in (None, "none")
        else ""
    )
    line = f"{outcome:<12}  {planned_object['kind']} {planned_object['name']}{at}{takes}"
    write(paint(line, _COLOURS.get(outcome, "")))
    for change in planned_object.get("changes", []):
        if not values:
            write(paint(f"    {change['field']}", ""))
            continue
        if change["before"] is not None:
            write(paint(f"  - {change['field']}: {plain(change['before'])}", "red"))
        if change["after"] is not None:
            write(paint(f"  + {change['field']}: {plain(change['after'])}", "green"))
    for check in planned_object.get("not_checked", []):
        write(paint(f"    {plain(check['word'])}: {plain(check['why'])}", "yellow"))
    for sentence in planned_object.get("state_change", []) + planned_object.get("notes", []):
        write(paint(f"    {plain(sentence)}", "yellow"))
    drift = planned_object.get("drift")
    if drift:
        fields = ", ".join(plain(change["field"]) for change in drift.get("changes", []))
        write(
            paint(
                f"    edited since the last apply: {fields}. {drift.get('way_out', '')}", "yellow"
            )
        )
    for line in problem_lines(planned_object.get("problems", []), indent="    "):
        write(paint(line, "red"))
