"""`cancel`: end a running operation or deploy."""

from typing import Annotated
from uuid import UUID

import typer

from headgate_cli.asked import Output, Timeout, Wait, server
from headgate_cli.commands.deploys import followed, show_deploy
from headgate_cli.ends import CommandEnded, ExitCode
from headgate_cli.following import TimeLimit, about
from headgate_cli.output import OutputForm, print_result, show_document
from headgate_cli.server import Json


def cancel(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="ID of an operation or a deploy; also operation/ID, deploy/ID.")
    ],
    wait: Wait = False,
    timeout: Timeout = "1h",
    output: Output = OutputForm.TABLE,
) -> int:
    """Cancel a deploy, or an operation before its point of no return.

    A deploy's changes are rolled back, unless it was started with `--on-failure stop`. With --wait,
    exit code 0: CANCELLED; 2: it ended differently, as the receipt shows.
    """
    kind, bare = _meant(name)
    limit, api = TimeLimit(timeout), server(context)
    if kind == "operation" or (not kind and api.find("deploys", bare) is None):
        _show_operation(api.post("operations", bare, "cancel"), output)
        return ExitCode.DONE
    cancelled: Json = api.post("deploys", bare, "cancel")
    if not wait:
        if output is OutputForm.TABLE:
            print_result(f"Deploy {bare} is being cancelled: headgate describe deploy {bare}")
        else:
            show_deploy(cancelled, output)
        return ExitCode.DONE
    ended = followed(api, cancelled, limit)
    show_deploy(ended, output)
    return ExitCode.DONE if ended["state"] == "CANCELLED" else ExitCode.FAILED


def _meant(name: str) -> tuple[str, str]:
    """Return the kind ("" if not given) and the ID of what should be cancelled."""
    kind, _, bare = name.rpartition("/")
    try:
        UUID(bare)
    except ValueError:
        kind = "none"
    if kind not in ("", "operation", "deploy"):
        way_out = "List IDs: headgate get operations --open; headgate get deploys"
        raise CommandEnded(
            ExitCode.USAGE, f"{name} is not a valid ID of an operation or a deploy.", way_out
        )
    return kind, bare


def _show_operation(operation: Json, output: OutputForm) -> None:
    if output is OutputForm.NAME:
        print_result(f"operation/{operation['id']}")
    elif output is not OutputForm.TABLE:
        show_document(operation, output)
    else:
        print_result(f"{about(operation)}: {operation['outcome']}, operation {operation['id']}")
