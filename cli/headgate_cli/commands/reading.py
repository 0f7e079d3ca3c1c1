"""`get` and `describe`."""

from typing import Annotated

import typer

from headgate_cli.asked import Output, server
from headgate_cli.ends import Code, Ended
from headgate_cli.kinds import Kind, kind_named, names_of_kinds
from headgate_cli.output import Form, plain, say, show_document, show_rows, show_table, yaml_text
from headgate_cli.server import Json, Server

#: Rows that a list prints where --limit says nothing else.
MOST_ROWS = 500
#: Rows of an account's history in `describe`.
RECENT = 5

KindName = Annotated[
    str,
    typer.Argument(metavar="KIND", help="queries, query, …", autocompletion=names_of_kinds),
]
Filter = Annotated[str, typer.Option()]
Filters = Annotated[list[str], typer.Option(help="Repeat it for several.")]


def get(
    context: typer.Context,
    kind: KindName,
    names: Annotated[list[str] | None, typer.Argument(help="Without names: all.")] = None,
    query: Annotated[str, typer.Option(help="Whose runs, revisions, failures.")] = "",
    application: Filter = "",
    team: Filter = "",
    search: Annotated[str, typer.Option(help="Part of a name.")] = "",
    phase: Filters = [],  # noqa: B006 (read only)
    health: Filters = [],  # noqa: B006
    desired: Annotated[str, typer.Option(help="RUNNING or STOPPED.")] = "",
    pool: Filter = "",
    status: Annotated[str, typer.Option(help="OPEN or RESOLVED.")] = "",
    state: Annotated[str, typer.Option(help="Of deploys: RUNNING, SUCCEEDED, …")] = "",
    owner: Filter = "",
    under_way: Annotated[
        bool | None, typer.Option("--open/--ended", help="Operations in progress, or ended.")
    ] = None,
    label: Annotated[
        list[str], typer.Option("--label", "-l", help="team=data, or team for any; repeat it.")
    ] = [],  # noqa: B006
    limit: Annotated[int, typer.Option(min=1, help="Rows at most.")] = MOST_ROWS,
    output: Output = Form.TABLE,
) -> None:
    """List what is there, or print those that are named.

    Kinds: queries, applications, operations, runs, revisions, failures, failure-groups, incidents,
    alert-rules, alert-channels, teams, deploys.
    """
    chosen = kind_named(kind)
    asked = {
        **{"query": query, "application": application, "team": team, "search": search},
        **{"phase": phase, "health": health, "desired": desired, "pool": pool},
        **{"status": status, "state": state, "owner": owner, "label": label},
        "open": "" if under_way is None else str(under_way).lower(),
    }
    filters = {name: value for name, value in asked.items() if value}
    there = server(context)
    if names:
        rows = [_one(there, chosen, chosen.bare(name)) for name in names]
    else:
        rows = list(there.rows(*_list(chosen, filters), most=limit, **filters))
    one = len(names or []) == 1
    show_rows(rows, chosen.shown, output, chosen.called, one=one)


def describe(
    context: typer.Context,
    kind: KindName,
    name: Annotated[str, typer.Argument()],
    output: Output = Form.TABLE,
) -> None:
    """Print all that is known of one thing; of a query or application, what happened last too."""
    chosen, there = kind_named(kind), server(context)
    name = chosen.bare(name)
    body = _one(there, chosen, name)
    if output is Form.NAME:
        say(chosen.called(body))
        return
    if output is not Form.TABLE:
        show_document(body, output)
        return
    _show_fields(body)
    for title, other, path, asked, most in _history(chosen, name):
        rows = list(there.rows(*path, most=most, **asked))
        if rows:
            say(f"\n{title}:")
            show_table(rows, kind_named(other).shown, indent="  ")


def _history(kind: Kind, name: str) -> list[tuple[str, str, tuple[str, ...], Json, int]]:
    """Return what belongs to one thing: title, kind, address, what is asked, rows at most."""
    if kind.name == "query":
        return [
            ("Operations", "operation", ("operations",), {"query": name}, RECENT),
            ("Runs", "run", ("queries", name, "runs"), {}, RECENT),
            ("Failures", "failure", ("queries", name, "failures"), {}, RECENT),
        ]
    if kind.name == "application":
        of = {"application": name}
        return [
            ("Queries", "query", ("queries",), of, MOST_ROWS),
            ("Operations", "operation", ("operations",), of, RECENT),
        ]
    return []


def _list(kind: Kind, filters: Json) -> tuple[str, ...]:
    """Return a list's address; take the query out of the filters where the address names it."""
    query = str(filters.pop("query", "")) if kind.of_query else ""
    if kind.of_query and not query:
        raise Ended(Code.USAGE, f"Say whose {kind.plural}.", "--query NAME")
    for name in filters:
        if name not in kind.filters:
            known = ", ".join(f"--{one}" for one in sorted(kind.filters)) or "none"
            message = f"{kind.plural} are not filtered by --{name}."
            raise Ended(Code.USAGE, message, f"Possible here: {known}.")
    return ("queries", query, kind.address) if query else (kind.address,)


def _one(there: Server, kind: Kind, name: str) -> Json:
    found: Json = there.get(*kind.path(name))
    return found


def _show_fields(body: Json) -> None:
    """Print single values as lines, then what holds more as YAML below its name."""
    larger = {name: held for name, held in body.items() if isinstance(held, dict | list) and held}
    small = [
        {"name": f"{name}:", "held": held}
        for name, held in body.items()
        if name not in larger and name not in ("etag", "links")
    ]
    width = max((len(row["name"]) for row in small), default=0)
    for row in small:
        say(f"{row['name']:<{width}}  {plain(row['held'])}")
    for name, held in larger.items():
        if name != "links":
            text = yaml_text(held).rstrip("\n")
            say(f"\n{name}:\n" + "\n".join(f"  {line}" for line in text.splitlines()))
