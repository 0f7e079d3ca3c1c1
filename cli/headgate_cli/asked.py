"""Options that several commands share, and the connection that they speak through."""

from dataclasses import dataclass
from typing import Annotated

import typer

from headgate_cli.contexts import chosen
from headgate_cli.kinds import kind_named
from headgate_cli.output import Form
from headgate_cli.server import Server


def query_name(text: str) -> str:
    """Return the name of a query, also of what `-o name` prints."""
    return kind_named("query").bare(text)


Output = Annotated[Form, typer.Option("--output", "-o", help="How results are printed.")]
Timeout = Annotated[str, typer.Option("--timeout", help="Longest wait: 90s, 10m, 2h.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return when it has ended, with its outcome.")]
QueryName = Annotated[str, typer.Argument(parser=query_name, help="Name of a query.")]
QueryNames = Annotated[
    list[str] | None, typer.Argument(parser=query_name, help="Names of queries.")
]
OfScript = Annotated[
    str, typer.Option("--application", help="Instead: an application that runs a script.")
]
Files = Annotated[
    list[str],
    typer.Option("--file", "-f", help="A manifest, a folder of them, or - for stdin; repeat it."),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """What stands before the command."""

    context: str = ""
    ca: str = ""


def server(context: typer.Context) -> Server:
    """Return the connection to the chosen installation."""
    asked: Asked = context.obj
    return Server(chosen(asked.context, asked.ca))
