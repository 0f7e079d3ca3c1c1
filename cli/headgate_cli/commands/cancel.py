"""`cancel`: end a running operation or deploy."""

from typing import Annotated
from uuid import UUID

import typer

from headgate_cli.asked import Output, Timeout, Wait, server
from headgate_cli.commands.deploys import followed, show_deploy
from headgate_cli.ends import Code, Ended
from headgate_cli.following import Limit, about
from headgate_cli.output import Form, say, show_document
from headgate_cli.server import Json


def cancel(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="ID of an operation or a deploy; also operation/ID, deploy/ID.")
    ],
    wait: Wait = False,
    timeout: Timeout = "1h",
    output: Output = Form.TABLE,
) -> int:
    """Cancel a deploy, or an operation before its point of no return.

    A deploy's changes are rolled back, unless it was started with `--on-failure stop`. With --wait,
    exit code 0: CANCELLED; 2: it ended differently, as the receipt shows.
    """
    kind, bare = _meant(name)
    limit, there = Limit(timeout), server(context)
    if kind == "operation" or (not kind and there.find("deploys", bare) is None):
        _show_operation(there.post("operations", bare, "cancel"), output)
        return Code.DONE
    asked: Json = there.post("deploys", bare, "cancel")
    if not wait:
        if output is Form.TABLE:
            say(f"Deploy {bare} is being cancelled: headgate describe deploy {bare}")
        else:
            show_deploy(asked, output)
        return Code.DONE
    ended = followed(there, asked, limit)
    show_deploy(ended, output)
    return Code.DONE if ended["state"] == "CANCELLED" else Code.FAILED


def _meant(name: str) -> tuple[str, str]:
    """Return the kind ("" if not given) and the ID of what should be cancelled."""
    kind, _, bare = name.rpartition("/")
    try:
        UUID(bare)
    except ValueError:
        kind = "none"
    if kind not in ("", "operation", "deploy"):
        way_out = "List IDs: headgate get operations --open; headgate get deploys"
        raise Ended(Code.USAGE, f"{name} is not a valid ID of an operation or a deploy.", way_out)
    return kind, bare


def _show_operation(operation: Json, output: Form) -> None:
    if output is Form.NAME:
        say(f"operation/{operation['id']}")
    elif output is not Form.TABLE:
        show_document(operation, output)
    else:
        say(f"{about(operation)}: {operation['outcome']}, operation {operation['id']}")
