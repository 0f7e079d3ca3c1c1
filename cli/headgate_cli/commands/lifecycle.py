"""`start`, `stop`, `restart` and `delete`: by name, by selector, or for a whole application."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated

import typer

from headgate_cli.asked import Output, QueryNames, Timeout, Wait, application_name, server
from headgate_cli.commands.reading import KindName
from headgate_cli.ends import Code, Ended, tell, worst
from headgate_cli.following import Limit, about, follow
from headgate_cli.kinds import kind_and_names, kind_named
from headgate_cli.output import Form, note, nothing, plain, say, show_document
from headgate_cli.server import Json, Server
from headgate_cli.sets import AcceptStateChange

Selector = Annotated[
    str,
    typer.Option(
        "--selector", "-l", help="Select queries by labels or phase: team=data,phase!=STOPPED."
    ),
]
Application = Annotated[
    str, typer.Option(parser=application_name, help="Select the queries of an application.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the selected queries.")]
Mode = Annotated[
    str, typer.Option(help="graceful: after the batch in flight; now: without waiting for it.")
]


@dataclass(frozen=True, slots=True)
class Meant:
    """A verb and the queries it applies to; raises `Ended` if they are specified in two ways."""

    verb: str
    names: list[str] | None
    selector: str
    application: str
    dry_run: bool
    body: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sum(map(bool, (self.names, self.selector, self.application))) != 1:
            way_out = "Name queries, or use --selector or --application."
            raise Ended(Code.USAGE, "Select queries in exactly one way.", way_out)
        if self.dry_run and not self.selector:
            raise Ended(Code.USAGE, "--dry-run only works with a selector.", "Use --selector.")

    def of_selector(self) -> Json:
        """Return the body of a verb for many queries."""
        return {**self.body, "selector": self.selector, "dry_run": self.dry_run}


def start(
    context: typer.Context,
    names: QueryNames = None,
    selector: Selector = "",
    application: Application = "",
    accept_state_change: AcceptStateChange = False,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Take over a checkpoint that another installation owns."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = "10m",
    output: Output = Form.TABLE,
) -> int:
    """Start queries on their newest revision."""
    body = _accepting(accept_state_change, application)
    meant = Meant("start", names, selector, application, dry_run, body)
    if take_over:
        meant = _taking_over(meant, yes=yes)
    return _act(server(context), meant, wait, timeout, output)


def _taking_over(meant: Meant, *, yes: bool) -> Meant:
    """Return the takeover of the named queries' checkpoints, once it is confirmed."""
    if not meant.names or meant.body:
        way_out = "Name the queries, without --accept-state-change."
        raise Ended(Code.USAGE, "--take-over applies to named queries only.", way_out)
    if not yes:
        note(
            "If another installation still runs these queries, batches are executed twice and the "
            "checkpoints can be damaged."
        )
        typer.confirm(f"Take over: {', '.join(meant.names)}?", abort=True, err=True)
    return replace(meant, verb="takeover")


def _accepting(accepted: bool, application: str) -> Json:
    """Return the body of a start; empty without acceptance, so that older servers accept it."""
    if accepted and application:
        way_out = "Name queries, or use --selector."
        raise Ended(Code.USAGE, "--accept-state-change applies only to queries.", way_out)
    return {"accept_state_change": True} if accepted else {}


def stop(
    context: typer.Context,
    names: QueryNames = None,
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
    names: QueryNames = None,
    selector: Selector = "",
    application: Application = "",
    accept_state_change: AcceptStateChange = False,
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = "10m",
    output: Output = Form.TABLE,
) -> int:
    """Stop queries gracefully and start them on their newest revision.

    For an application, the driver is replaced.
    """
    body = _accepting(accept_state_change, application)
    meant = Meant("restart", names, selector, application, dry_run, body)
    return _act(server(context), meant, wait, timeout, output)


def delete(
    context: typer.Context,
    kind: KindName,
    names: Annotated[list[str] | None, typer.Argument(help="Queries must be stopped.")] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show what would be deleted, or why it cannot be deleted."
        ),
    ] = False,
) -> int:
    """Delete definitions; the history and the checkpoint files of queries are kept."""
    chosen, names = kind_and_names(kind, names or [])
    if not names:
        raise Ended(Code.USAGE, f"No {chosen.plural} given.", "Add the names.")
    if not chosen.deletable:
        raise Ended(Code.USAGE, f"{chosen.plural} cannot be deleted with this command.")
    there = server(context)

    def one(name: str) -> None:
        there.delete(*chosen.path(name), **({"dry_run": "true"} if dry_run else {}))
        say(f"{chosen.name}/{name} {'would be deleted' if dry_run else 'deleted'}")

    return _each(names, one)


def declare_host_gone(
    context: typer.Context,
    host: Annotated[str, typer.Argument(help="The host that is gone for good.")],
    applications: Annotated[
        list[str],
        typer.Argument(help="Applications whose drivers on the host are considered dead."),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    output: Output = Form.TABLE,
) -> int:
    """Treat drivers on a silent host as dead. Anything still running there may continue writing.

    Local checkpoints stay on that host; reset their queries to start them on another one.
    """
    there, begun, kind = server(context), list[Json](), kind_named("application")
    if not yes:
        note(f"Drivers still running on {host} may write to their sinks until that host is back.")
        typer.confirm(f"Declare {host} gone for {', '.join(applications)}?", abort=True, err=True)

    def one(name: str) -> None:
        path = ("applications", kind.bare(name), "declare-host-gone")
        begun.append(there.post(*path, body={"host": host}))

    code = _each(applications, one)
    if output is not Form.TABLE:
        _show_operations(begun, output)
        return code
    for made in begun:
        found = made["result"]
        what = [f"waits for {host} or a reset: {', '.join(found['stay'])}"] if found["stay"] else []
        what += [f"starts on another host: {', '.join(found['move'])}"] if found["move"] else []
        say(
            f"{made['application']}: its driver is considered dead; "
            f"{'; '.join(what) or 'no queries'}"
        )
    return code


def release(
    context: typer.Context,
    kind: KindName,
    names: Annotated[
        list[str] | None, typer.Argument(help="Queries, applications or alert rules.")
    ] = None,
) -> int:
    """Release objects from their owner: their files no longer apply, and no prune deletes them."""
    chosen, names = kind_and_names(kind, names or [])
    if not names:
        raise Ended(Code.USAGE, f"No {chosen.plural} given.", "Add the names.")
    if not chosen.deletable:
        raise Ended(Code.USAGE, f"{chosen.plural} have no owner.")
    there = server(context)

    def one(name: str) -> None:
        there.delete(*chosen.path(name), "owner")
        say(f"{chosen.name}/{name} released")

    return _each(names, one)


def _act(there: Server, meant: Meant, wait: bool, timeout: str, output: Form) -> int:
    """Send a verb to the named queries; if requested, wait for the operations that it starts."""
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
    """Do something for each name, even after one was rejected; return the combined exit code."""
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
    if not names:
        note(nothing("queries", narrowed=True))
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
            waits = f"; {plain(one['detail'])}" if one["detail"] and not one["outcome"] else ""
            say(f"{about(one)}: requested, operation {one['id']}{waits}")
