"""The statement that counts a query's rows by the keys of its grouping."""

import re
from copy import deepcopy

from sqlglot import exp

from queries.domain.definitions.sql_text import RENAMED_WINDOW, parsed
from queries.domain.probes.questions import KEY_ROWS, TOTAL_ROWS

#: Keys that are shown, those with the most rows first.
MOST_KEYS = 10

_RENAMED = re.compile(rf"\b{RENAMED_WINDOW}\(", re.IGNORECASE)


def keys_sql(text: str) -> str:
    """Return SQL with a row for each of the largest groups; "" if there is no GROUP BY.

    The outermost GROUP BY counts. Its keys come first, then the group's rows (`KEY_ROWS`) and those
    of all groups (`TOTAL_ROWS`).
    """
    statement = parsed(text)
    if statement is None:
        return ""
    # Breadth first, so the outermost comes first.
    group = next((node for node in statement.find_all(exp.Group) if node.expressions), None)
    select = group.parent if group is not None else None
    if group is None or not isinstance(select, exp.Select):
        return ""
    keys = [_key(node, select) for node in group.expressions]
    counts = f"count(*) AS {KEY_ROWS}", f"sum(count(*)) OVER () AS {TOTAL_ROWS}"
    named = [exp.alias_(key.copy(), f"key{number}") for number, key in enumerate(keys, 1)]
    counted = exp.select(*named, *counts, dialect="spark")
    inputs = {part: select.args.get(part) for part in ("from_", "joins", "laterals", "where")}
    for part, clause in {**inputs, "with_": statement.args.get("with_")}.items():
        if clause:
            counted.set(part, deepcopy(clause))
    counted = counted.group_by(*(key.copy() for key in keys))
    ordered = counted.order_by(exp.Ordered(this=exp.column(KEY_ROWS), desc=True)).limit(MOST_KEYS)
    return _RENAMED.sub("window(", ordered.sql(dialect="spark"))


def _key(key: exp.Expression, select: exp.Select) -> exp.Expression:
    """Return a key as an expression of the inputs: Spark also takes a column's number or alias."""
    columns = select.expressions
    if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.this) <= len(columns):
        expression: exp.Expression = columns[int(key.this) - 1].unalias()
        return expression
    if isinstance(key, exp.Column) and not key.table:
        for column in columns:
            if isinstance(column, exp.Alias) and column.alias.lower() == key.name.lower():
                return column.this
    return key
