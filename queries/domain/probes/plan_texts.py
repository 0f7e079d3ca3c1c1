"""What a query's state depends on, read from its SQL text, in its author's words.

The text expresses a difference between analyzed plans (`plan_shapes`) in the author's own wording.
It also replaces the old plan if that plan is no longer available, for example because its source is
gone.
"""

from sqlglot import exp

from queries.domain.definitions.spec import SqlQuery
from queries.domain.definitions.sql_text import Text, read
from queries.domain.probes.plan_shapes import OperatorShape, Shapes


def of_text(spec: SqlQuery) -> Shapes | None:
    """Return a text's shapes; None if it cannot be parsed without Spark."""
    text = read(spec)
    if text is None:
        return None
    mode = spec.sink.output_mode if spec.sink else ""
    watermarks = tuple(
        f"{source.watermark.column}, {source.watermark.delay}"
        for source in spec.sources
        if source.watermark
    )
    shapes = [_shape(text, select, watermarks) for select in text.streaming_aggregates()]
    return Shapes(tuple(shapes), mode)


def _shape(text: Text, select: exp.Select, watermarks: tuple[str, ...]) -> OperatorShape:
    keys = [_key(select, expression) for expression in _grouped(select)]
    where = select.args.get("where")
    aggregates = dict.fromkeys(
        _sql(node)
        for node in select.walk(prune=lambda inner: inner is not select and _inner(inner))
        if isinstance(node, exp.AggFunc) and not node.find_ancestor(exp.Window)
    )
    return OperatorShape(
        kind="aggregation",
        keys=tuple(_sql(key) for key in keys if not _is_window(key)),
        aggregates=tuple(aggregates),
        windows=tuple(_sql(key) for key in keys if _is_window(key)),
        watermarks=watermarks,
        filters=tuple(sorted(_sql(expression) for expression in _conjuncts(where.this)))
        if where
        else (),
        joins=tuple(_sql(join) for join in select.args.get("joins") or ()),
    )


def _grouped(select: exp.Select) -> list[exp.Expression]:
    group = select.args.get("group")
    return list(group.expressions) if group is not None else []


def _key(select: exp.Select, key: exp.Expression) -> exp.Expression:
    """Return what a grouping key refers to: a position in the list, an alias, or itself."""
    if isinstance(key, exp.Literal) and key.is_int and int(key.this) <= len(select.expressions):
        return _unaliased(select.expressions[int(key.this) - 1])
    if isinstance(key, exp.Column) and not key.table:
        named = {
            expression.alias: expression.this
            for expression in select.expressions
            if isinstance(expression, exp.Alias)
        }
        return named.get(key.name, key)
    return key


def _unaliased(expression: exp.Expression) -> exp.Expression:
    return expression.this if isinstance(expression, exp.Alias) else expression


def _is_window(key: exp.Expression) -> bool:
    return _sql(key).lower().startswith(("window(", "session_window("))


def _inner(node: exp.Expression) -> bool:
    return isinstance(node, exp.Query)


def _conjuncts(condition: exp.Expression) -> list[exp.Expression]:
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]


def _sql(node: exp.Expression) -> str:
    return str(node.sql(dialect="spark"))
