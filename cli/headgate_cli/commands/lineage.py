"""`lineage`: what a query reads and writes, and the queries upstream and downstream of it."""

import typer

from headgate_cli.asked import Output, QueryName, server
from headgate_cli.ends import ExitCode
from headgate_cli.output import (
    Columns,
    OutputForm,
    Row,
    plain,
    print_result,
    show_document,
    show_table,
)
from headgate_cli.server import Json

_COLUMNS: Columns = {
    "QUERY": lambda edge: edge["query"],
    "USE": lambda edge: "writes" if edge["writes"] else "reads",
    "KIND": lambda edge: edge["kind"],
    "DATASET": lambda edge: edge["dataset"],
    "KNOWN FROM": lambda edge: _origin(edge),
}


def lineage(context: typer.Context, query: QueryName, output: Output = OutputForm.TABLE) -> int:
    """Show the queries upstream and downstream of a query, and the data between them."""
    graph: Json = server(context).get("queries", query, "lineage")
    if output.is_document:
        show_document(graph, output)
    elif output is OutputForm.NAME:
        for name in graph["downstream"]:
            print_result(f"query/{name}")
    else:
        print_result(f"Upstream:    {_names(graph, 'upstream')}")
        print_result(f"Downstream:  {_names(graph, 'downstream')}")
        if graph["edges"]:
            print_result("")
            show_table(graph["edges"], _COLUMNS)
        if graph["left_out"]:
            print_result(f"{graph['left_out']:,} more.")
        for gap in graph["unknown"]:
            print_result(f"{plain(gap['query'])}: {plain(' '.join(gap['says']))}")
    return ExitCode.DONE


def _names(graph: Json, direction: str) -> str:
    names = ", ".join(map(plain, graph[direction])) or "no known query"
    unsure = graph.get(f"unsure_{direction}")  # an older server does not send it
    if not unsure:
        return names
    reason = f"not all reads and writes are known of {', '.join(map(plain, unsure))}"
    return f"{names} (may be incomplete: {reason})"


def _origin(edge: Row) -> str:
    if edge["known_from"] == "spark":
        return f"Spark, {edge['as_of']}" if edge["as_of"] else "Spark"
    return str(edge["known_from"])
