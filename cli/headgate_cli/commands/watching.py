"""`get --watch`: all rows of a list, and then each one that changes."""

import json
from collections.abc import Callable

from headgate_cli.following import TimeLimit
from headgate_cli.kinds import ResourceKind
from headgate_cli.output import (
    Columns,
    OutputForm,
    cells_of,
    is_closed,
    note,
    nothing,
    print_result,
    show_document,
    show_lines,
    yaml_text,
)
from headgate_cli.server import Json


def watched(
    look: Callable[[], list[Json]],
    kind: ResourceKind,
    columns: Columns,
    form: OutputForm,
    limit: TimeLimit,
    *,
    narrowed: bool,
) -> None:
    """Print rows whose cells have changed; raise `Ended` when the limit expires.

    A document is one line of JSON, or one of several documents in YAML. Returns once nobody reads
    the output any more.
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
