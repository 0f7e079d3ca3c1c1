"""The `headgate` command."""

import sys
from typing import Annotated, Any

import typer

from headgate_cli.commands import (
    deploys,
    importing,
    lifecycle,
    login,
    logs,
    manifests,
    queries,
    reading,
    waits,
)
from headgate_cli.output import CommandEnded, ExitCode, note, print_end, print_result
from headgate_cli.server import version_of_this
from headgate_cli.sets import GlobalOptions

app = typer.Typer(
    name="headgate",
    help="Manage streaming queries from a shell or CI through Headgate's REST API.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    *(login.login, login.logout, login.contexts),
    *(reading.get, reading.describe),
    *(manifests.diff, manifests.apply, manifests.export, deploys.deploy, deploys.rollback),
    *(manifests.upload, lifecycle.cancel),
    *(lifecycle.start, lifecycle.stop, lifecycle.restart, lifecycle.delete, lifecycle.release),
    lifecycle.declare_host_gone,
    *(
        waits.wait,
        waits.run,
        logs.logs,
        queries.lineage,
        queries.schedule,
        queries.preflight,
        lifecycle.answer,
    ),
):
    app.command()(_command)
app.command(name="import")(importing.import_jobs)

#: The error for a wrong command line, wherever the library defines it.
_UsageError: Any = typer.BadParameter.__bases__[0]


def _version(requested: bool) -> None:
    if requested:
        print_result(f"headgate {version_of_this()}")
        raise typer.Exit


@app.callback()
def _before(
    context: typer.Context,
    named: Annotated[
        str,
        typer.Option(
            "--context",
            envvar="HEADGATE_CONTEXT",
            help="Installation to use, as listed by `contexts`.",
        ),
    ] = "",
    ca: Annotated[
        str,
        typer.Option(
            "--ca",
            envvar="HEADGATE_CA",
            help="PEM file with the CA that signed the server's certificate.",
        ),
    ] = "",
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    context.obj = GlobalOptions(named, ca)


def main() -> int:
    """Run a command; return its exit code, with the reason on stderr if it is not 0."""
    try:
        code = int(app(prog_name="headgate", standalone_mode=False) or 0)
    except CommandEnded as ended:
        print_end(ended)
        return ended.code
    except _UsageError as error:
        error.show()
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        code = ExitCode.INTERRUPTED
    except OSError as error:  # from a file on this machine
        note(f"Error: {error}")
        return ExitCode.REFUSED
    if code == ExitCode.INTERRUPTED:  # the library itself turns it into this code
        note("Interrupted. Operations in progress continue.")
    return code


def run() -> None:
    """Run a command, and exit with its code."""
    sys.exit(main())


if __name__ == "__main__":
    run()
