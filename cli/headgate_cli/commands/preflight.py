"""`preflight`: try a definition on a copy of its query's checkpoint, before it runs."""

from typing import Annotated

import typer

from headgate_cli.asked import Output, QueryName, Timeout, server
from headgate_cli.ends import Code
from headgate_cli.following import Limit, Progress, code_of, followed
from headgate_cli.output import Form, note, plain, say, show_document
from headgate_cli.server import Json


def preflight(
    context: typer.Context,
    query: QueryName,
    strict: Annotated[
        bool,
        typer.Option(
            help="Also fail if Spark would silently accept a change that affects results, or if "
            "the checkpoint could not be tried."
        ),
    ] = False,
    spark: Annotated[
        str, typer.Option(help="Test with this version of Spark, such as 4.2.", metavar="VERSION")
    ] = "",
    timeout: Timeout = "15m",
    output: Output = Form.TABLE,
) -> int:
    """Test a query's newest revision on a copy of its checkpoint, and wait for the outcome.

    Running queries are not affected. `headgate apply` stores a revision without running it.
    """
    there, limit = server(context), Limit(timeout)
    body = {"spark": spark} if spark else {}
    asked = there.post("queries", query, "preflight", body=body)
    operation = followed(there, asked, limit, Progress())
    judged: Json = (operation.get("result") or {}).get("preflight") or {}
    if output.is_document:
        show_document(operation, output)
    elif output is Form.NAME:
        say(f"operation/{operation['id']}")
    else:
        _show(query, operation, judged)
    code = code_of(operation["outcome"])
    doubtful = judged.get("verdict") in ("differs", "incomplete")
    return Code.FAILED if strict and doubtful and code is Code.DONE else code


def _show(query: str, operation: Json, judged: Json) -> None:
    say(f"{query}: {judged.get('verdict') or operation['outcome']}")
    for one in judged.get("tries", []):
        title = f": {plain(one['title'])}" if one.get("title") else ""
        say(f"  {plain(one.get('label'))}: {plain(one.get('end'))}{title}")
        if one.get("way_out"):
            say(f"    What to do: {plain(one['way_out'])}")
    for one in (*judged.get("differences", []), *judged.get("pinned", [])):
        say(f"  differs: {_difference(one)}")
    if change := judged.get("spark"):
        doubts = " ".join(plain(one) for one in change.get("back_doubts", []))
        way = plain(change.get("no_way_back")) or doubts or "there is a way back"
        say(f"  Spark {plain(change.get('from'))} → {plain(change.get('to'))}: {way}")
    for one in judged.get("not_tried", []):
        say(f"  not tested: {plain(one)}")
    if not judged and operation.get("detail"):
        note(plain(operation["detail"]))


def _difference(one: Json) -> str:
    old, new = (plain(one.get(name) or None) for name in ("old", "new"))
    return f"{plain(one.get('what'))}: {old} → {new}"
