"""`lineage`: what a query reads and writes, and the queries upstream and downstream of it."""

import typer

from headgate_cli.asked import Output, QueryName, server
from headgate_cli.ends import Code
from headgate_cli.output import Columns, Form, Row, plain, say, show_document, show_table
from headgate_cli.server import Json

_COLUMNS: Columns = {
    "QUERY": lambda edge: edge["query"],
    "USE": lambda edge: "writes" if edge["writes"] else "reads",
    "KIND": lambda edge: edge["kind"],
    "DATASET": lambda edge: edge["dataset"],
    "KNOWN FROM": lambda edge: _known(edge),
}


def lineage(context: typer.Context, query: QueryName, output: Output = Form.TABLE) -> int:
    """Show the queries upstream and downstream of a query, and the data between them."""
    found: Json = server(context).get("queries", query, "lineage")
    if output.is_document:
        show_document(found, output)
    elif output is Form.NAME:
        for name in found["downstream"]:
            say(f"query/{name}")
    else:
        say(f"Upstream:    {_names(found, 'upstream')}")
        say(f"Downstream:  {_names(found, 'downstream')}")
        if found["edges"]:
            say("")
            show_table(found["edges"], _COLUMNS)
        if found["left_out"]:
            say(f"{found['left_out']:,} more.")
        for one in found["unknown"]:
            say(f"{plain(one['query'])}: {plain(' '.join(one['says']))}")
    return Code.DONE


def _names(found: Json, direction: str) -> str:
    names = ", ".join(map(plain, found[direction])) or "no known query"
    unsure = found.get(f"unsure_{direction}")  # an older server does not send it
    if not unsure:
        return names
    reason = f"not all reads and writes are known of {', '.join(map(plain, unsure))}"
    return f"{names} (may be incomplete: {reason})"


def _known(edge: Row) -> str:
    if edge["known_from"] == "spark":
        return f"Spark, {edge['as_of']}" if edge["as_of"] else "Spark"
    return str(edge["known_from"])
