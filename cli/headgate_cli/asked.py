"""Options that several commands share, and the connection to the server."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from headgate_cli.contexts import chosen
from headgate_cli.kinds import kind_named
from headgate_cli.output import OutputForm, form_named, forms_named
from headgate_cli.server import Server


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
QueryName = Annotated[str, typer.Argument(parser=query_name, help="Name of a query.")]
QueryNames = Annotated[
    list[str] | None, typer.Argument(parser=query_name, help="Names of queries.")
]
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
