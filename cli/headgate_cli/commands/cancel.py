"""`cancel`: end an operation or a deploy that is under way."""

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
        str, typer.Argument(help="Id of an operation or a deploy; also operation/ID, deploy/ID.")
    ],
    wait: Wait = False,
    timeout: Timeout = "1h",
    output: Output = Form.TABLE,
) -> int:
    """End an operation before its point of no return, or a deploy.

    What a deploy has written goes back, unless it was to stay (`--on-failure stop`). With --wait,
    exit code 0: CANCELLED; 2: it ended otherwise, and the receipt says how.
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
    """Return the kind, "" where it is not said, and the id of what is to be cancelled."""
    kind, _, bare = name.rpartition("/")
    try:
        UUID(bare)
    except ValueError:
        kind = "none"
    if kind not in ("", "operation", "deploy"):
        way_out = "List ids: headgate get operations --open; headgate get deploys"
        raise Ended(Code.USAGE, f"{name} is no id of an operation or a deploy.", way_out)
    return kind, bare


def _show_operation(operation: Json, output: Form) -> None:
    if output is Form.NAME:
        say(f"operation/{operation['id']}")
    elif output is not Form.TABLE:
        show_document(operation, output)
    else:
        say(f"{about(operation)}: {operation['outcome']}, operation {operation['id']}")
