"""`start`, `stop`, `restart`, `delete`, `cancel` and `answer`: by name, by selector, or for a
whole application.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated
from uuid import UUID

import typer

from headgate_cli.commands.deploys import followed, show_deploy
from headgate_cli.commands.reading import KindName
from headgate_cli.following import TimeLimit, about, follow
from headgate_cli.kinds import kind_and_names, kind_named
from headgate_cli.output import (
    CommandEnded,
    ExitCode,
    OutputForm,
    note,
    nothing,
    plain,
    print_end,
    print_result,
    refused,
    show_document,
    worst,
)
from headgate_cli.server import Json, Server
from headgate_cli.sets import (
    AcceptStateChange,
    Output,
    QueryNames,
    Timeout,
    Wait,
    application_name,
    server,
)


def answer(
    context: typer.Context,
    application: Annotated[
        str, typer.Argument(parser=application_name, help="Name of a script application.")
    ],
    same_as: Annotated[
        str, typer.Option("--same-as", metavar="QUERY", help="The missing query that it continues.")
    ] = "",
    another: Annotated[
        bool, typer.Option("--another", help="It is not one of the missing queries.")
    ] = False,
    identity: Annotated[
        str, typer.Option(help="Answer only if the question is about this identity (see describe).")
    ] = "",
    output: Output = OutputForm.TABLE,
) -> None:
    """Answer which missing query a script's new query corresponds to, so that the script continues.

    The new query takes over the checkpoint and history of that query, or starts as a new one.
    """
    api = server(context)
    body: Json = api.get("applications", application)
    question = (body.get("script") or {}).get("question")
    if question is None:
        way_out = f"See its state: headgate describe application {application}"
        raise refused(f"Script {application} is not waiting for an answer.", way_out)
    missing = ", ".join(question["missing"])
    if bool(same_as) == another:
        message = f"Is {plain(question['query'])} one of {missing}, or another query?"
        raise CommandEnded(ExitCode.USAGE, message, "Use --same-as QUERY or --another.")
    same = kind_named("query").bare(same_as)
    sent = {"identity": identity or question["identity"], "same_as": same}
    body = api.post("applications", application, "answer", body=sent)
    if output is OutputForm.NAME:
        print_result(f"application/{application}")
    elif output is not OutputForm.TABLE:
        show_document(body, output)
    else:
        is_what = same or "another query"
        print_result(f"{plain(question['query'])} is {is_what}. Script {application} continues.")


def cancel(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="Operation or deploy ID; also operation/ID, deploy/ID.")
    ],
    wait: Wait = False,
    timeout: Timeout = "1h",
    output: Output = OutputForm.TABLE,
) -> int:
    """Cancel a deploy, or an operation before its point of no return.

    A deploy's changes are rolled back, unless it was started with `--on-failure stop`. With --wait,
    exit code 0: CANCELLED; 2: it ended differently, as the deploy report shows.
    """
    kind, bare = _meant(name)
    limit, api = TimeLimit(timeout), server(context)
    if kind == "operation" or (not kind and api.find("deploys", bare) is None):
        _show_operation(api.post("operations", bare, "cancel"), output)
        return ExitCode.DONE
    cancelled_deploy: Json = api.post("deploys", bare, "cancel")
    if not wait:
        if output is OutputForm.TABLE:
            print_result(f"Deploy {bare} is being cancelled: headgate describe deploy {bare}")
        else:
            show_deploy(cancelled_deploy, output)
        return ExitCode.DONE
    ended = followed(api, cancelled_deploy, limit)
    show_deploy(ended, output)
    return ExitCode.DONE if ended["state"] == "CANCELLED" else ExitCode.FAILED


def _meant(name: str) -> tuple[str, str]:
    """Return the kind ("" if not given) and ID of the object to cancel."""
    kind, _, bare = name.rpartition("/")
    try:
        UUID(bare)
    except ValueError:
        kind = "none"
    if kind not in ("", "operation", "deploy"):
        way_out = "List IDs: headgate get operations --open; headgate get deploys"
        raise CommandEnded(
            ExitCode.USAGE, f"{name} is not a valid operation or deploy ID.", way_out
        )
    return kind, bare


def _show_operation(operation: Json, output: OutputForm) -> None:
    if output is OutputForm.NAME:
        print_result(f"operation/{operation['id']}")
    elif output is not OutputForm.TABLE:
        show_document(operation, output)
    else:
        print_result(f"{about(operation)}: {operation['outcome']}, operation {operation['id']}")


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
    """A verb and its queries; raises `CommandEnded` if they are specified in two ways."""

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
    object_kind, names = kind_and_names(kind, names or [])
    if not names:
        raise CommandEnded(ExitCode.USAGE, f"No {object_kind.plural} given.", "Add the names.")
    if not object_kind.deletable:
        raise CommandEnded(
            ExitCode.USAGE, f"{object_kind.plural} cannot be deleted with this command."
        )
    api = server(context)

    def one(name: str) -> None:
        api.delete(*object_kind.path(name), **({"dry_run": "true"} if dry_run else {}))
        print_result(f"{object_kind.name}/{name} {'would be deleted' if dry_run else 'deleted'}")

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
    object_kind, names = kind_and_names(kind, names or [])
    if not names:
        raise CommandEnded(ExitCode.USAGE, f"No {object_kind.plural} given.", "Add the names.")
    if not object_kind.deletable:
        raise CommandEnded(ExitCode.USAGE, f"{object_kind.plural} have no owner.")
    api = server(context)

    def one(name: str) -> None:
        api.delete(*object_kind.path(name), "owner")
        print_result(f"{object_kind.name}/{name} released")

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
