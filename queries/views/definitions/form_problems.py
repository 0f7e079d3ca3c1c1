"""Where on a query's form a problem of its JSON form is shown."""

from collections.abc import Iterable

from queries.domain.errors import Problem
from queries.views.definitions.application_form import add_problem, show_problems
from queries.views.definitions.query_bundle import Bundle, filled_rows

#: Where a problem of the JSON form is shown: its path's beginning, the field of QueryForm.
_PLACES = {
    "sink.format": "sink_format",
    "sink.options": "sink_options",
    "sink.output_mode": "output_mode",
    "sink.partition_by": "partition_by",
    "sink": "sink_format",
    "trigger.interval": "trigger_interval",
    "trigger.kind": "trigger_kind",
    "trigger": "trigger_kind",
    "sql": "sql",
    "function": "function",
    "params": "params",
    "pool": "pool",
    "conf": "conf",
    "name": "name",
    "kind": "kind",
    "application": "application",
    "checkpoint": "checkpoint",
}
_OWN = "application_spec."


def show_in_form(bundle: Bundle, problems: Iterable[Problem]) -> None:
    """Put each problem at the field it is about."""
    for problem in problems:
        path = problem.field.removeprefix("spec.")
        if path.startswith(_OWN):
            show_problems(bundle.own, [problem], prefix=_OWN)
        elif path.startswith(("sources.", "tables.")):
            _show_in_row(bundle, path, problem)
        else:
            _show_in_main(bundle, path, problem)


def _show_in_row(bundle: Bundle, path: str, problem: Problem) -> None:
    which, index, *rest = path.split(".")
    formset = bundle.sources if which == "sources" else bundle.tables
    rows = [row for row, _ in filled_rows(formset)]
    if not index.isdigit() or int(index) >= len(rows):
        add_problem(bundle.main, None, problem, about=path)
        return
    form = formset.forms[rows[int(index)]]
    name = "_".join(rest[:2]) if rest[:1] == ["watermark"] else (rest or ["name"])[0]
    field = {"schema": "ddl_schema", "watermark": "watermark_column"}.get(name, name)
    if field in form.fields:
        add_problem(form, field, problem, about=".".join(rest[1:]) if field == name else "")
    else:
        add_problem(form, None, problem, about=".".join(rest))


def _show_in_main(bundle: Bundle, path: str, problem: Problem) -> None:
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if field := _PLACES.get(".".join(parts[:length])):
            add_problem(bundle.main, field, problem, about=".".join(parts[length:]))
            return
    add_problem(bundle.main, None, problem, about=path)
