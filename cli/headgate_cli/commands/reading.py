"""`get` and `describe`; with `--watch`, all rows of a list, and then each one that changes."""

import json
from collections.abc import Callable
from typing import Annotated

import typer

from headgate_cli.following import TimeLimit
from headgate_cli.json_path import Path, PathError, order, read_path
from headgate_cli.kinds import ResourceKind, kind_and_names, kind_named, names_of_kinds
from headgate_cli.output import (
    Columns,
    CommandEnded,
    ExitCode,
    OutputForm,
    cells_of,
    is_closed,
    note,
    nothing,
    plain,
    print_result,
    show_document,
    show_lines,
    show_rows,
    show_table,
    yaml_text,
)
from headgate_cli.server import Json, Server
from headgate_cli.sets import (
    ListOutput,
    Output,
    Timeout,
    application_name,
    query_name,
    server,
    team_name,
)


def watched(
    look: Callable[[], list[Json]],
    kind: ResourceKind,
    columns: Columns,
    form: OutputForm,
    limit: TimeLimit,
    *,
    narrowed: bool,
) -> None:
    """Print the rows whose cells have changed; raise `CommandEnded` when the limit expires.

    Each document is one line of JSON, or one document in a YAML stream. Returns once nobody reads
    the output any longer.
    """
    before, widths = dict[str, list[str]](), list[int]()
    first = True
    while not is_closed():
        rows = {kind.called(row): row for row in look()}
        cells = {name: cells_of(row, columns) for name, row in rows.items()}
        changed = [name for name, line in cells.items() if before.get(name) != line]
        if first and not rows:
            note(nothing(kind.plural, narrowed=narrowed))
        if changed and form in (OutputForm.TABLE, OutputForm.WIDE):
            titles = [] if widths else [list(columns)]
            widths = show_lines([*titles, *(cells[name] for name in changed)], widths)
        elif form is OutputForm.NAME:
            for name in changed:
                print_result(name)
        elif form is OutputForm.JSON:
            for name in changed:
                print_result(json.dumps(rows[name], ensure_ascii=False))
        elif form is OutputForm.YAML:
            for name in changed:
                print_result(f"---\n{yaml_text(rows[name])}".rstrip("\n"))
        elif form.template is not None:
            for name in changed:
                show_document(rows[name], form)
        for name in before.keys() - cells.keys():
            note(f"{name} is no longer in the list.")
        if changed:
            limit.moved()
        before, first = cells, False
        if not is_closed():
            limit.pause(f"watching {kind.plural}", reads=True)


#: Rows that a list prints unless --limit is given.
MOST_ROWS = 500
#: Rows of history in `describe`.
RECENT = 5

KindName = Annotated[
    str,
    typer.Argument(metavar="KIND", help="queries, query, …", autocompletion=names_of_kinds),
]
Filter = Annotated[str, typer.Option()]
Filters = Annotated[list[str], typer.Option(help="Repeatable.")]


def get(
    context: typer.Context,
    kind: KindName,
    names: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    query: Annotated[
        str,
        typer.Option(parser=query_name, help="Query whose runs, revisions or failures to list."),
    ] = "",
    application: Annotated[str, typer.Option(parser=application_name)] = "",
    team: Annotated[str, typer.Option(parser=team_name)] = "",
    search: Annotated[str, typer.Option(help="Part of a name.")] = "",
    phase: Filters = [],  # noqa: B006 (read only)
    health: Filters = [],  # noqa: B006
    desired: Annotated[str, typer.Option(help="RUNNING or STOPPED.")] = "",
    pool: Filter = "",
    status: Annotated[str, typer.Option(help="OPEN or RESOLVED.")] = "",
    state: Annotated[str, typer.Option(help="State of deploys: RUNNING, SUCCEEDED, …")] = "",
    owner: Filter = "",
    hours: Annotated[
        int, typer.Option(min=0, help="Hours that schedules look back; default 24.")
    ] = 0,
    under_way: Annotated[
        bool | None,
        typer.Option("--open/--ended", help="Only operations in progress, or only ended ones."),
    ] = None,
    label: Annotated[
        list[str],
        typer.Option("--label", "-l", help="team=data, or team for any value; repeatable."),
    ] = [],  # noqa: B006
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = MOST_ROWS,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep watching, and print each row that changes.")
    ] = False,
    timeout: Timeout = "1h",
    sort_by: Annotated[
        str,
        typer.Option(help="Field that sorts the rows, as in `-o json`: .phase or .health.verdict."),
    ] = "",
    output: ListOutput = OutputForm.TABLE,
) -> None:
    """List objects, or print the named ones.

    Several kinds are separated by commas: queries,applications. With --watch, print all rows and
    then each one that changes, until Ctrl-C or --timeout.

    Kinds: queries, applications, operations, runs, revisions, failures, failure-groups, incidents,
    alert-rules, alert-channels, teams, schedules, deploys.
    """
    by = _sorting(sort_by)
    options = {
        **{"query": query, "application": application, "team": team, "search": search},
        **{"phase": phase, "health": health, "desired": desired, "pool": pool},
        **{"status": status, "state": state, "owner": owner, "label": label, "hours": hours},
        "open": "" if under_way is None else str(under_way).lower(),
    }
    filters = {name: value for name, value in options.items() if value}
    kinds = kind.split(",")
    if len(kinds) > 1 and (names or watch):
        message = "Several kinds can be listed, but not by name and not with --watch."
        raise CommandEnded(ExitCode.USAGE, message, "Give one kind, or kinds without names.")
    if watch and by:
        raise CommandEnded(
            ExitCode.USAGE, "--watch prints rows as they change.", "Remove --sort-by."
        )
    api, documents = server(context), {}
    for word in kinds:
        object_kind, wanted = kind_and_names(word, names or [])
        own = dict(filters)
        look = _look(
            api, object_kind, wanted, own, limit
        )  # takes the query that is in the path out
        shown = object_kind.wide if output is OutputForm.WIDE else object_kind.shown
        if watch:
            watched(look, object_kind, shown, output, TimeLimit(timeout), narrowed=bool(own))
            return
        rows = sorted(look(), key=order(by)) if by else look()
        if not rows:
            note(nothing(object_kind.plural, narrowed=bool(own)))
        if len(kinds) > 1 and output.is_document:
            documents[object_kind.plural] = rows
            continue
        if len(kinds) > 1 and rows and output is not OutputForm.NAME:
            print_result(f"{object_kind.plural}:")
        if rows or output.is_document:
            show_rows(rows, shown, output, object_kind.called, single=len(wanted) == 1)
    if documents:
        show_document(documents, output)


def _sorting(text: str) -> Path | None:
    try:
        return read_path(text) if text else None
    except PathError as error:
        raise CommandEnded(ExitCode.USAGE, f"--sort-by: {error}") from None


def _look(
    api: Server, kind: ResourceKind, names: list[str], filters: Json, limit: int
) -> Callable[[], list[Json]]:
    """Return a function that reads the named objects of a kind, or its list."""
    if names:
        return lambda: [_read_object(api, kind, name) for name in names]
    below = _list(kind, filters)
    return lambda: list(api.rows(*below, most=limit, **filters))


def describe(
    context: typer.Context,
    kind: KindName,
    name: Annotated[str, typer.Argument()] = "",
    output: Output = OutputForm.TABLE,
) -> None:
    """Print everything known about one object; for a query or application, also recent history."""
    object_kind, names = kind_and_names(kind, [name] if name else [])
    if len(names) != 1:
        raise CommandEnded(
            ExitCode.USAGE, f"Exactly one {object_kind.name} is required.", "Give one name."
        )
    api, name = server(context), names[0]
    body = _read_object(api, object_kind, name)
    if output is OutputForm.NAME:
        print_result(object_kind.called(body))
        return
    if output is not OutputForm.TABLE:
        show_document(body, output)
        return
    _show_fields(body)
    for title, other, path, filters, most in _history(object_kind, name):
        rows = list(api.rows(*path, most=most, **filters))
        if rows:
            print_result(f"\n{title}:")
            show_table(rows, kind_named(other).shown, indent="  ")


def _history(kind: ResourceKind, name: str) -> list[tuple[str, str, tuple[str, ...], Json, int]]:
    """Return the lists that belong to one object: title, kind, path, parameters, maximum rows."""
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


def _list(kind: ResourceKind, filters: Json) -> tuple[str, ...]:
    """Return a list's path, removing the query from the filters if it is in the path."""
    query = str(filters.pop("query", "")) if kind.of_query else ""
    if kind.of_query and not query:
        raise CommandEnded(ExitCode.USAGE, f"No query given for {kind.plural}.", "--query NAME")
    for name in filters:
        if name not in kind.filters:
            choices = ", ".join(f"--{option}" for option in sorted(kind.filters)) or "none"
            message = f"{kind.plural} cannot be filtered by --{name}."
            raise CommandEnded(ExitCode.USAGE, message, f"Available filters: {choices}.")
    return ("queries", query, kind.address) if query else (kind.address,)


def _read_object(api: Server, kind: ResourceKind, name: str) -> Json:
    body: Json = api.get(*kind.path(name))
    return body


def _show_fields(body: Json) -> None:
    """Print single values as lines, then nested ones as YAML below their names."""
    larger = {
        name: value for name, value in body.items() if isinstance(value, dict | list) and value
    }
    small = [
        {"name": f"{name}:", "held": value}
        for name, value in body.items()
        if name not in larger and name not in ("etag", "links")
    ]
    width = max((len(row["name"]) for row in small), default=0)
    for row in small:
        print_result(f"{row['name']:<{width}}  {plain(row['held'])}")
    for name, value in larger.items():
        if name != "links":
            text = yaml_text(value).rstrip("\n")
            print_result(f"\n{name}:\n" + "\n".join(f"  {line}" for line in text.splitlines()))
