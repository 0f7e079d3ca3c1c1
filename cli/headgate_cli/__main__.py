"""The `headgate` command."""

import sys
from typing import Annotated, Any

import typer

from headgate_cli.asked import Asked
from headgate_cli.commands import (
    answer,
    cancel,
    deploys,
    lifecycle,
    login,
    logs,
    manifests,
    preflight,
    reading,
    waits,
)
from headgate_cli.ends import Code, Ended, tell
from headgate_cli.output import note

app = typer.Typer(
    name="headgate",
    help="Streaming queries from a shell and from CI, over Headgate's REST API.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    *(login.login, login.logout, login.contexts),
    *(reading.get, reading.describe),
    *(manifests.diff, manifests.apply, manifests.export, deploys.deploy, deploys.rollback),
    cancel.cancel,
    *(lifecycle.start, lifecycle.stop, lifecycle.restart, lifecycle.delete, lifecycle.release),
    *(waits.wait, logs.logs, preflight.preflight, answer.answer),
):
    app.command()(_command)

#: The error of a wrong command line, wherever the library keeps it.
_UsageError: Any = typer.BadParameter.__bases__[0]


@app.callback()
def _before(
    context: typer.Context,
    named: Annotated[
        str,
        typer.Option(
            "--context", envvar="HEADGATE_CONTEXT", help="Installation, as `contexts` lists them."
        ),
    ] = "",
    ca: Annotated[
        str,
        typer.Option(
            "--ca", envvar="HEADGATE_CA", help="File (PEM) that the server's certificate must fit."
        ),
    ] = "",
) -> None:
    context.obj = Asked(named, ca)


def main() -> int:
    """Run a command; return its exit code, with why on stderr where it is not 0."""
    try:
        code = int(app(prog_name="headgate", standalone_mode=False) or 0)
    except Ended as ended:
        tell(ended)
        return ended.code
    except _UsageError as error:
        error.show()
        return Code.USAGE
    except (typer.Abort, KeyboardInterrupt):
        code = Code.INTERRUPTED
    except OSError as error:  # of a file of this machine
        note(f"Error: {error}")
        return Code.REFUSED
    if code == Code.INTERRUPTED:  # which the library turns into this code by itself
        note("Interrupted. What was begun goes on.")
    return code


def run() -> None:
    """Run a command, and exit with its code."""
    sys.exit(main())


if __name__ == "__main__":
    run()
