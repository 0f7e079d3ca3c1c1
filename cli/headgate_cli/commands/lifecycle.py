"""`start`, `stop`, `restart` and `delete`: by name, by selector, or for a whole application."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated

import typer

from headgate_cli.asked import Output, QueryNames, Timeout, Wait, application_name, server
from headgate_cli.commands.reading import KindName
from headgate_cli.ends import CommandEnded, ExitCode, print_end, worst
from headgate_cli.following import TimeLimit, about, follow
from headgate_cli.kinds import kind_and_names, kind_named
from headgate_cli.output import OutputForm, note, nothing, plain, print_result, show_document
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
            raise CommandEnded(ExitCode.USAGE, "Select queries in exactly one way.", way_out)
        if self.dry_run and not self.selector:
            raise CommandEnded(
                ExitCode.USAGE, "--dry-run only works with a selector.", "Use --selector."
            )

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
    output: Output = OutputForm.TABLE,
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
        raise CommandEnded(ExitCode.USAGE, "--take-over applies to named queries only.", way_out)
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
        raise CommandEnded(
            ExitCode.USAGE, "--accept-state-change applies only to queries.", way_out
        )
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
    output: Output = OutputForm.TABLE,
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
    output: Output = OutputForm.TABLE,
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
        raise CommandEnded(ExitCode.USAGE, f"No {chosen.plural} given.", "Add the names.")
    if not chosen.deletable:
        raise CommandEnded(ExitCode.USAGE, f"{chosen.plural} cannot be deleted with this command.")
    api = server(context)

    def one(name: str) -> None:
        api.delete(*chosen.path(name), **({"dry_run": "true"} if dry_run else {}))
        print_result(f"{chosen.name}/{name} {'would be deleted' if dry_run else 'deleted'}")

    return _do_for_all(names, one)


def declare_host_gone(
    context: typer.Context,
    host: Annotated[str, typer.Argument(help="The host that is gone for good.")],
    applications: Annotated[
        list[str],
        typer.Argument(help="Applications whose drivers on the host are considered dead."),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    output: Output = OutputForm.TABLE,
) -> int:
    """Treat drivers on a silent host as dead. Anything still running there may continue writing.

    Local checkpoints stay on that host; reset their queries to start them on another one.
    """
    api, begun, kind = server(context), list[Json](), kind_named("application")
    if not yes:
        note(f"Drivers still running on {host} may write to their sinks until that host is back.")
        typer.confirm(f"Declare {host} gone for {', '.join(applications)}?", abort=True, err=True)

    def one(name: str) -> None:
        path = ("applications", kind.bare(name), "declare-host-gone")
        begun.append(api.post(*path, body={"host": host}))

    code = _do_for_all(applications, one)
    if output is not OutputForm.TABLE:
        _show_operations(begun, output)
        return code
    for made in begun:
        result = made["result"]
        what = (
            [f"waits for {host} or a reset: {', '.join(result['stay'])}"] if result["stay"] else []
        )
        what += [f"starts on another host: {', '.join(result['move'])}"] if result["move"] else []
        print_result(
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
        raise CommandEnded(ExitCode.USAGE, f"No {chosen.plural} given.", "Add the names.")
    if not chosen.deletable:
        raise CommandEnded(ExitCode.USAGE, f"{chosen.plural} have no owner.")
    api = server(context)

    def one(name: str) -> None:
        api.delete(*chosen.path(name), "owner")
        print_result(f"{chosen.name}/{name} released")

    return _do_for_all(names, one)


def _act(api: Server, meant: Meant, wait: bool, timeout: str, output: OutputForm) -> int:
    """Send a verb to the named queries; if requested, wait for the operations that it starts."""
    limit, begun, code = TimeLimit(timeout), list[Json](), int(ExitCode.DONE)
    if meant.selector:
        response = api.post(f"queries:{meant.verb}", body=meant.of_selector())
        if meant.dry_run:
            _show_names(response["queries"], output)
            return code
        note(f"{len(response['queries'])} queries: {', '.join(response['queries']) or 'none'}")
        begun = [api.get("operations", response["operation"])] if response["operation"] else []
    elif meant.application:
        response = api.post("applications", meant.application, meant.verb, body=meant.body)
        begun = response.get("results", [response])
    else:
        code = _do_for_all(
            meant.names or [],
            lambda name: begun.append(api.post("queries", name, meant.verb, body=meant.body)),
        )
    if wait:
        code = worst([code, follow(api, begun, limit)])
        if output is OutputForm.TABLE:
            return code
        begun = [api.get("operations", operation["id"]) for operation in begun]
    _show_operations(begun, output)
    return code


def _do_for_all(names: list[str], act: Callable[[str], None]) -> int:
    """Do something for each name, even after one was rejected; return the combined exit code."""
    codes = []
    for name in names:
        try:
            act(name)
        except CommandEnded as ended:
            note(f"{name}:")
            print_end(ended)
            codes.append(ended.code)
    return worst(codes)


def _show_names(names: list[str], output: OutputForm) -> None:
    if not names:
        note(nothing("queries", narrowed=True))
    if output in (OutputForm.TABLE, OutputForm.NAME):
        for name in names:
            print_result(f"query/{name}")
    else:
        show_document(names, output)


def _show_operations(begun: list[Json], output: OutputForm) -> None:
    if output is OutputForm.NAME:
        for operation in begun:
            print_result(f"operation/{operation['id']}")
    elif output is not OutputForm.TABLE:
        show_document(begun, output)
    else:
        for operation in begun:
            waits = (
                f"; {plain(operation['detail'])}"
                if operation["detail"] and not operation["outcome"]
                else ""
            )
            print_result(f"{about(operation)}: requested, operation {operation['id']}{waits}")
