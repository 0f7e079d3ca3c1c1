"""`login`, `logout` and `contexts`: installations and their tokens, stored in a private file."""

import getpass
import sys
from typing import Annotated

import typer

from headgate_cli.kinds import columns
from headgate_cli.output import OutputForm, note, nothing, print_result, refused, show_rows
from headgate_cli.server import Contexts, Installation, Server, checked, checked_name
from headgate_cli.sets import GlobalOptions, Output


def login(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="https://headgate.example.org")],
    name: Annotated[str, typer.Option(help="Name of the context.")] = "",
) -> None:
    """Store an installation's URL and a token for later commands.

    The token is prompted for, or read from stdin if that is not a terminal. It is tested first, and
    stored in a file that only you can read. An admin creates it, for example on the Tokens page.
    """
    options: GlobalOptions = context.obj
    name = checked_name(name or options.context or "default")
    text = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()
    installation = checked(Installation(url, text.strip(), options.ca))
    me = Server(installation).get("me")
    contexts = Contexts()
    contexts.places[name] = installation
    contexts.current = name
    contexts.write()
    print_result(f"Logged in to {installation.url} as {me['user']} ({me['role']}); context {name}.")


def logout(
    name: Annotated[str, typer.Argument(help="Context; default: the current one.")] = "",
) -> None:
    """Remove a context and its token. The token stays valid until it is revoked."""
    contexts = Contexts()
    name = name or contexts.current
    if contexts.places.pop(name, None) is None:
        raise refused(f"Context {name} does not exist." if name else "You are not logged in.")
    if contexts.current == name:
        contexts.current = next(iter(sorted(contexts.places)), "")
    contexts.write()
    print_result(f"Context {name} was removed.")


def contexts(
    use: Annotated[str, typer.Option(help="Make this context the current one.")] = "",
    output: Output = OutputForm.TABLE,
) -> None:
    """List the known installations, without their tokens."""
    stored_contexts = Contexts()
    if use:
        if use not in stored_contexts.places:
            raise refused(f"Context {use} does not exist.", "headgate contexts")
        stored_contexts.current = use
        stored_contexts.write()
    rows = [
        {
            "name": name,
            "current": name == stored_contexts.current,
            "url": installation.url,
            "ca": installation.ca,
        }
        for name, installation in sorted(stored_contexts.places.items())
    ]
    if not rows:
        note(nothing("contexts", narrowed=False))
    show_rows(rows, columns("name current url ca"), output, lambda row: f"context/{row['name']}")
