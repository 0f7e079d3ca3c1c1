"""`login`, `logout` and `contexts`: installations and their tokens, in a file of one's own."""

import getpass
import sys
from typing import Annotated

import typer

from headgate_cli.asked import Asked, Output
from headgate_cli.contexts import Contexts, Place, checked, checked_name
from headgate_cli.ends import refused
from headgate_cli.kinds import columns
from headgate_cli.output import Form, say, show_rows
from headgate_cli.server import Server


def login(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="https://headgate.example.org")],
    name: Annotated[str, typer.Option(help="Name of the context.")] = "",
) -> None:
    """Keep an installation's address and a token for later commands.

    The token is asked for, or read from stdin where that is no terminal. It is tried first, and
    kept in a file that only you can read. An admin creates it, on the Tokens page for example.
    """
    asked: Asked = context.obj
    name = checked_name(name or asked.context or "default")
    text = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()
    place = checked(Place(url, text.strip(), asked.ca))
    me = Server(place).get("me")
    contexts = Contexts()
    contexts.places[name] = place
    contexts.current = name
    contexts.write()
    say(f"Logged in to {place.url} as {me['user']} ({me['role']}); context {name}.")


def logout(
    name: Annotated[str, typer.Argument(help="Context; without it, the current one.")] = "",
) -> None:
    """Forget a context and its token. The token stays valid until it is revoked."""
    contexts = Contexts()
    name = name or contexts.current
    if contexts.places.pop(name, None) is None:
        raise refused(f"There is no context {name}." if name else "You are not logged in.")
    if contexts.current == name:
        contexts.current = next(iter(sorted(contexts.places)), "")
    contexts.write()
    say(f"Context {name} is forgotten.")


def contexts(
    use: Annotated[str, typer.Option(help="Make this context the current one.")] = "",
    output: Output = Form.TABLE,
) -> None:
    """List the installations that are known, never their tokens."""
    known = Contexts()
    if use:
        if use not in known.places:
            raise refused(f"There is no context {use}.", "headgate contexts")
        known.current = use
        known.write()
    rows = [
        {"name": name, "current": name == known.current, "url": place.url, "ca": place.ca}
        for name, place in sorted(known.places.items())
    ]
    show_rows(rows, columns("name current url ca"), output, lambda row: f"context/{row['name']}")
