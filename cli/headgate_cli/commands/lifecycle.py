"""`start`, `stop`, `restart` and `delete`: by name, by selector, or of a whole application."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import typer

from headgate_cli.asked import Output, Timeout, Wait, query_name, server
from headgate_cli.commands.reading import KindName
from headgate_cli.ends import Code, Ended, tell, worst
from headgate_cli.following import Limit, about, follow
from headgate_cli.kinds import kind_named
from headgate_cli.output import Form, note, say, show_document
from headgate_cli.server import Json, Server

Names = Annotated[list[str] | None, typer.Argument(parser=query_name, help="Names of queries.")]
Selector = Annotated[
    str, typer.Option("--selector", "-l", help="Instead of names: team=data,phase!=STOPPED.")
]
Application = Annotated[str, typer.Option(help="Instead of names: an application.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which queries are meant.")]
Mode = Annotated[
    str, typer.Option(help="graceful: after the batch in flight; now: without waiting for it.")
]


@dataclass(frozen=True, slots=True)
class Meant:
    """A verb, and the queries that it is for; raises `Ended` where they are named in two ways."""

    verb: str
    names: list[str] | None
    selector: str
    application: str
    dry_run: bool
    body: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sum(map(bool, (self.names, self.selector, self.application))) != 1:
            way_out = "Name queries, or give --selector, or --application."
            raise Ended(Code.USAGE, "Say which queries are meant, in one way.", way_out)
        if self.dry_run and not self.selector:
            raise Ended(Code.USAGE, "--dry-run shows what a selector means.", "Give --selector.")

    def of_selector(self) -> Json:
        """Return the body of a verb for many queries."""
        return {**self.body, "selector": self.selector, "dry_run": self.dry_run}


def start(
    context: typer.Context,
    names: Names = None,
    selector: Selector = "",
    application: Application = "",
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = "10m",
    output: Output = Form.TABLE,
) -> int:
    """Start queries on their newest revision."""
    meant = Meant("start", names, selector, application, dry_run)
    return _act(server(context), meant, wait, timeout, output)


def stop(
    context: typer.Context,
    names: Names = None,
    selector: Selector = "",
    application: Application = "",
    mode: Mode = "graceful",
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = "10m",
    output: Output = Form.TABLE,
) -> int:
    """Stop queries."""
    meant = Meant("stop", names, selector, application, dry_run, {"mode": mode})
    return _act(server(context), meant, wait, timeout, output)


def restart(
    context: typer.Context,
    names: Names = None,
    selector: Selector = "",
    application: Application = "",
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = "10m",
    output: Output = Form.TABLE,
) -> int:
    """Stop queries gracefully and start them on their newest revision.

    Of an application, the driver is replaced.
    """
    meant = Meant("restart", names, selector, application, dry_run)
    return _act(server(context), meant, wait, timeout, output)


def delete(
    context: typer.Context,
    kind: KindName,
    names: Annotated[list[str], typer.Argument(help="Queries must be stopped.")],
) -> int:
    """Delete definitions; the history and the checkpoints' files of queries are kept."""
    chosen = kind_named(kind)
    if not chosen.deletable:
        raise Ended(Code.USAGE, f"{chosen.plural} cannot be deleted here.")
    there = server(context)

    def one(name: str) -> None:
        there.delete(*chosen.path(chosen.bare(name)))
        say(f"{chosen.name}/{chosen.bare(name)} deleted")

    return _each(names, one)


def release(
    context: typer.Context,
    kind: KindName,
    names: Annotated[list[str], typer.Argument(help="Queries, applications or alert rules.")],
) -> int:
    """Release objects from their owner: their files no longer decide, and no prune takes them."""
    chosen = kind_named(kind)
    if not chosen.deletable:
        raise Ended(Code.USAGE, f"{chosen.plural} have no owner.")
    there = server(context)

    def one(name: str) -> None:
        there.delete(*chosen.path(chosen.bare(name)), "owner")
        say(f"{chosen.name}/{chosen.bare(name)} released")

    return _each(names, one)


def _act(there: Server, meant: Meant, wait: bool, timeout: str, output: Form) -> int:
    """Send a verb to what is meant; wait for what begins where that is asked for."""
    limit, begun, code = Limit(timeout), list[Json](), int(Code.DONE)
    if meant.selector:
        found = there.post(f"queries:{meant.verb}", body=meant.of_selector())
        if meant.dry_run:
            _show_names(found["queries"], output)
            return code
        note(f"{len(found['queries'])} queries: {', '.join(found['queries']) or 'none'}")
        begun = [there.get("operations", found["operation"])] if found["operation"] else []
    elif meant.application:
        found = there.post("applications", meant.application, meant.verb, body=meant.body)
        begun = found.get("results", [found])
    else:
        code = _each(
            meant.names or [],
            lambda name: begun.append(there.post("queries", name, meant.verb, body=meant.body)),
        )
    if wait:
        code = worst([code, follow(there, begun, limit)])
        if output is Form.TABLE:
            return code
        begun = [there.get("operations", one["id"]) for one in begun]
    _show_operations(begun, output)
    return code


def _each(names: list[str], act: Callable[[str], None]) -> int:
    """Do something for each name, also after one was refused; return the code of all."""
    codes = []
    for name in names:
        try:
            act(name)
        except Ended as ended:
            note(f"{name}:")
            tell(ended)
            codes.append(ended.code)
    return worst(codes)


def _show_names(names: list[str], output: Form) -> None:
    if output in (Form.TABLE, Form.NAME):
        for name in names:
            say(f"query/{name}")
    else:
        show_document(names, output)


def _show_operations(begun: list[Json], output: Form) -> None:
    if output is Form.NAME:
        for one in begun:
            say(f"operation/{one['id']}")
    elif output is not Form.TABLE:
        show_document(begun, output)
    else:
        for one in begun:
            say(f"{about(one)}: requested, operation {one['id']}")
