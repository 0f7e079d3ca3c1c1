"""Find how a new definition changes the meaning of a checkpoint's state, before it starts.

The text expresses a difference between analyzed plans (`plan_shapes`) in the author's own SQL. It
also replaces the old plan if that plan is no longer available, for example because its source is
gone.

Spark compares the types of state, not its meaning. If a sum is replaced with a maximum, a window is
doubled, or the key is replaced with another one of the same type, the query continues from the old
state without an error, and the results are wrong until the last old group is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlglot import exp

from queries.domain.definitions.spec import SqlQuery
from queries.domain.definitions.sql_text import Text, read
from queries.domain.probes.plan_shapes import OperatorShape, Shapes


def of_text(spec: SqlQuery) -> Shapes | None:
    """Return the shapes in SQL; None if it cannot be parsed without Spark."""
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
    """Return the target of a grouping key: a position in the list, an alias, or itself."""
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


SILENT = "Spark will not object, but the existing state was computed by the old definition."


class Property(StrEnum):
    """What state depends on, in the words of pages."""

    OUTPUT_MODE = "output mode"
    OPERATORS = "stateful operators"
    KEY = "grouping key"
    WINDOW = "window"
    AGGREGATE = "aggregate"
    WATERMARK = "watermark"
    FILTER = "filter"
    JOIN = "join"
    OTHER = "operator"


@dataclass(frozen=True, slots=True)
class ShapeDifference:
    """One property that state depends on, before and now."""

    what: str  # a `Property`, or a configuration key
    old: str  # "" if there was none
    new: str  # "" if it is gone

    def sentence(self) -> str:
        """Return the difference as one line of text."""
        if not self.old:
            return f"{self.what} added: {self.new}"
        if not self.new:
            return f"{self.what} removed: {self.old}"
        return f"{self.what}: {self.old} → {self.new}"


def compare(old: Shapes, new: Shapes) -> tuple[ShapeDifference, ...]:
    """Return how two forms of a query differ in what their state depends on.

    If either form has no state, there are no differences that affect a checkpoint.
    """
    if not old.operators and not new.operators:
        return ()
    differences: list[ShapeDifference] = []
    if old.output_mode != new.output_mode:
        differences.append(ShapeDifference(Property.OUTPUT_MODE, old.output_mode, new.output_mode))
    before, after = (
        [operator.kind for operator in old.operators],
        [operator.kind for operator in new.operators],
    )
    if before != after:
        differences.append(ShapeDifference(Property.OPERATORS, _listed(before), _listed(after)))
        return tuple(differences)
    for old_operator, new_operator in zip(old.operators, new.operators, strict=True):
        differences += _operator(old_operator, new_operator)
    return tuple(dict.fromkeys(differences))


def in_words(
    by_spark: tuple[ShapeDifference, ...], by_text: tuple[ShapeDifference, ...]
) -> tuple[ShapeDifference, ...]:
    """Return the differences between Spark's plans, in the author's wording where that is possible.

    If both comparisons found the same number of differences of a kind, these are the same ones.
    """

    def of(differences: tuple[ShapeDifference, ...], what: str) -> list[ShapeDifference]:
        return [difference for difference in differences if difference.what == what]

    chosen: list[ShapeDifference] = []
    for what in dict.fromkeys(plan_difference.what for plan_difference in by_spark):
        mine, theirs = of(by_spark, what), of(by_text, what)
        chosen += theirs if len(mine) == len(theirs) else mine
    return tuple(chosen)


def pinned(
    wanted: Mapping[str, str], logged_conf: Mapping[str, str]
) -> tuple[ShapeDifference, ...]:
    """Return configuration that a checkpoint pins to a value other than the definition's.

    `logged_conf` comes from the newest offset log; Spark uses these values and mentions that only
    in its log.
    """
    return tuple(
        ShapeDifference(key, logged_conf[key], value)
        for key, value in sorted(wanted.items())
        if key in logged_conf and logged_conf[key] != value
    )


def _operator(old: OperatorShape, new: OperatorShape) -> list[ShapeDifference]:
    return [
        *_by_position(Property.KEY, old.keys, new.keys),
        *_by_position(Property.WINDOW, old.windows, new.windows),
        *_by_position(Property.AGGREGATE, old.aggregates, new.aggregates),
        *_as_sets(Property.WATERMARK, old.watermarks, new.watermarks),
        *_as_sets(Property.FILTER, old.filters, new.filters),
        *_by_position(Property.JOIN, old.joins, new.joins),
        *_by_position(Property.OTHER, old.other, new.other),
    ]


def _by_position(
    what: Property, old: tuple[str, ...], new: tuple[str, ...]
) -> list[ShapeDifference]:
    """Compare properties that Spark identifies by position, because state has no names for them."""
    if len(old) == len(new):
        return [ShapeDifference(what, a, b) for a, b in zip(old, new, strict=True) if a != b]
    return _as_sets(what, old, new)


def _as_sets(what: Property, old: tuple[str, ...], new: tuple[str, ...]) -> list[ShapeDifference]:
    removed = [value for value in old if value not in new]
    added = [value for value in new if value not in old]
    if len(removed) == len(added):
        return [ShapeDifference(what, a, b) for a, b in zip(removed, added, strict=True)]
    return [ShapeDifference(what, a, "") for a in removed] + [
        ShapeDifference(what, "", b) for b in added
    ]


def _listed(words: list[str]) -> str:
    return ", ".join(words)


#: Differences that change the form of the state: Spark rejects them if one side has none.
_FORM = frozenset({Property.KEY, Property.WINDOW, Property.AGGREGATE, Property.OPERATORS})


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """One form of a query: its definition, and its state according to Spark's analyzer."""

    spec: SqlQuery
    shapes: Shapes | None  # None: not analyzed


@dataclass(frozen=True, slots=True)
class StateChange:
    """Differences from the definition that wrote the checkpoint."""

    refused: tuple[str, ...]  # Spark will refuse to start
    silent: tuple[str, ...]  # Spark will start, and results will be wrong
    unknown: str = ""  # why it cannot be determined; "" if it can


def state_change(old: AnalyzedQuery, new: AnalyzedQuery) -> StateChange:
    """Return how two forms of a query differ.

    Spark's plans are compared; if they are missing, the SQL is, if it can be parsed without Spark.
    """
    was, now = of_text(old.spec), of_text(new.spec)
    by_text = compare(was, now) if was is not None and now is not None else None
    if old.shapes is not None and new.shapes is not None:
        differences = in_words(compare(old.shapes, new.shapes), by_text or ())
    elif by_text is not None:
        differences = by_text
    else:
        return StateChange((), (), "neither Spark's plans nor the SQL texts are known.")
    refused = [difference for difference in differences if _changes_form(difference)]
    silent = [difference for difference in differences if not _changes_form(difference)]
    return StateChange(_sentences(refused), _sentences(silent))


def _sentences(differences: list[ShapeDifference]) -> tuple[str, ...]:
    return tuple(difference.sentence() for difference in differences)


def _changes_form(difference: ShapeDifference) -> bool:
    counted = difference.what in _FORM and not (difference.old and difference.new)
    return counted or difference.what == Property.OPERATORS


def shapes_of(document: dict[str, Any] | None) -> Shapes | None:
    """Return the shapes stored with a revision; None if missing or from a later release."""
    if document is None:
        return None
    try:
        operators = tuple(
            OperatorShape(
                operator["kind"],
                **{name: tuple(operator[name]) for name in operator.keys() - {"kind"}},
            )
            for operator in document["operators"]
        )
        return Shapes(operators, document["output_mode"])
    except (KeyError, TypeError, AttributeError):
        return None
