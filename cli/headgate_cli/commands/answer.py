"""`answer`: say which query it is that a script has begun to start, while others went."""

from typing import Annotated

import typer

from headgate_cli.asked import Output, server
from headgate_cli.ends import Code, Ended, refused
from headgate_cli.kinds import kind_named
from headgate_cli.output import Form, plain, say, show_document
from headgate_cli.server import Json


def application_name(text: str) -> str:
    """Return the name of an application, also of what `-o name` prints."""
    return kind_named("application").bare(text)


def answer(
    context: typer.Context,
    application: Annotated[
        str, typer.Argument(parser=application_name, help="Name of an application with a script.")
    ],
    same_as: Annotated[
        str, typer.Option("--same-as", metavar="QUERY", help="It is this one of those missing.")
    ] = "",
    another: Annotated[bool, typer.Option("--another", help="It is another query.")] = False,
    identity: Annotated[
        str, typer.Option(help="Only if this is what is asked about; describe shows it.")
    ] = "",
    output: Output = Form.TABLE,
) -> None:
    """Say what a new query of a script is, so that the script goes on.

    It takes over the checkpoint and the history of the query that it is, or begins as another.
    """
    there = server(context)
    body: Json = there.get("applications", application)
    question = (body.get("script") or {}).get("question")
    if question is None:
        way_out = f"See its state: headgate describe application {application}"
        raise refused(f"The script of {application} has no question.", way_out)
    missing = ", ".join(question["missing"])
    if bool(same_as) == another:
        message = f"Is {plain(question['query'])} one of {missing}, or another query?"
        raise Ended(Code.USAGE, message, "Give --same-as QUERY, or --another.")
    same = kind_named("query").bare(same_as)
    sent = {"identity": identity or question["identity"], "same_as": same}
    body = there.post("applications", application, "answer", body=sent)
    if output is Form.NAME:
        say(f"application/{application}")
    elif output is not Form.TABLE:
        show_document(body, output)
    else:
        is_what = same or "another query"
        say(f"{plain(question['query'])} is {is_what}. The script of {application} goes on.")
