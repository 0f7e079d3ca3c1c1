"""`answer`: decide which missing query, if any, a script's new query is."""

from typing import Annotated

import typer

from headgate_cli.asked import Output, application_name, server
from headgate_cli.ends import CommandEnded, ExitCode, refused
from headgate_cli.kinds import kind_named
from headgate_cli.output import OutputForm, plain, print_result, show_document
from headgate_cli.server import Json


def answer(
    context: typer.Context,
    application: Annotated[
        str, typer.Argument(parser=application_name, help="Name of an application with a script.")
    ],
    same_as: Annotated[
        str, typer.Option("--same-as", metavar="QUERY", help="The missing query that it is.")
    ] = "",
    another: Annotated[
        bool, typer.Option("--another", help="It is not one of the missing queries.")
    ] = False,
    identity: Annotated[
        str, typer.Option(help="Answer only if the question is about this identity (see describe).")
    ] = "",
    output: Output = OutputForm.TABLE,
) -> None:
    """Decide which missing query a script's new query is, so that the script continues.

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
