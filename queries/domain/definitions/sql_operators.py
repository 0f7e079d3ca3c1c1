"""Find which operators SQL text uses, because some triggers do not support all of them.

Only operators that can be identified for certain from the text are reported. Anything that depends
on Spark's plan (such as whether the joined table is small enough to be broadcast) is left to a
preflight.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sqlglot import exp

from queries.domain.definitions.spec import SqlQuery
from queries.domain.definitions.sql_text import Text, read


class SqlOperator(StrEnum):
    """An operator other than selection and projection; the value is a phrase that describes it."""

    AGGREGATION = "aggregates"
    DISTINCT = "removes duplicates"
    STREAM_JOIN = "joins two streams"
    STATIC_JOIN = "joins a table"
    MEMBERSHIP = "queries another table with IN or EXISTS"
    UNION = "combines several SELECTs"
    TWICE = "reads one source more than once"
    LIMIT = "has a LIMIT"
    SORT = "sorts"
    WINDOW = "uses a window function"
    GENERATOR = "turns one row into several (explode, LATERAL VIEW)"
    CURRENT_TIME = "uses the current time"
    WATERMARK = "has a watermark"
    SAMPLE = "takes a sample"
    SHUFFLE = "redistributes rows (DISTRIBUTE BY, CLUSTER BY)"
    REPARTITION = "has a hint that redistributes rows"
    WITH = "has a WITH clause"


#: Operators that keep state in a text over one stream, whatever else the text uses.
KEEPS_STATE = frozenset({SqlOperator.AGGREGATION, SqlOperator.DISTINCT})


@dataclass(frozen=True, slots=True)
class Operators:
    """A text's operators, and the parts that are unknown."""

    used: frozenset[SqlOperator] = frozenset()
    readable: bool = True  # whether Headgate can parse the text; otherwise only Spark can check it
    unknown: tuple[str, ...] = ()  # functions with unknown effect


_NODES: tuple[tuple[SqlOperator, tuple[type[exp.Expression], ...]], ...] = (
    (SqlOperator.UNION, (exp.SetOperation,)),
    (SqlOperator.LIMIT, (exp.Limit, exp.Offset)),
    (SqlOperator.SORT, (exp.Sort,)),
    (SqlOperator.WINDOW, (exp.Window,)),
    (
        SqlOperator.GENERATOR,
        (exp.Explode, exp.Posexplode, exp.Inline, exp.Stack, exp.Lateral),
    ),
    (
        SqlOperator.CURRENT_TIME,
        (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Localtimestamp),
    ),
    (SqlOperator.SAMPLE, (exp.TableSample,)),
    (SqlOperator.SHUFFLE, (exp.Distribute, exp.Cluster)),
    (SqlOperator.MEMBERSHIP, (exp.Exists,)),
    (SqlOperator.AGGREGATION, (exp.Pivot,)),
)
_TIMES = frozenset({"now", "curdate", "current_timezone"})
_GENERATORS = frozenset({"json_tuple", "inline_outer", "variant_explode"})
#: Event-time functions: they are used in a GROUP BY, which is found as an aggregation.
_WINDOWS = frozenset({"window", "window_of", "window_time", "session_window"})
_REPARTITIONS = frozenset({"repartition", "repartition_by_range", "rebalance", "coalesce"})


def operators(spec: SqlQuery) -> Operators:
    """Return the operators that a query's SQL text uses."""
    marked = {SqlOperator.WATERMARK for source in spec.sources if source.watermark}
    text = read(spec)
    if text is None:
        return Operators(frozenset(marked), readable=False)
    used = marked | set(_named(text)) | set(_joins(text)) | set(_functions(text))
    unknown = {node.name.lower() for node in _anonymous(text)} - _TIMES - _GENERATORS - _WINDOWS
    return Operators(frozenset(used), unknown=tuple(sorted(unknown)))


def _named(text: Text) -> Iterator[SqlOperator]:
    statement = text.statement
    for operator, nodes in _NODES:
        if statement.find(*nodes):
            yield operator
    if text.ctes:
        yield SqlOperator.WITH
    if any(text.streaming_aggregates()):
        yield SqlOperator.AGGREGATION
    united = [node for node in statement.find_all(exp.SetOperation) if node.args.get("distinct")]
    if united or any(select.args.get("distinct") for select in statement.find_all(exp.Select)):
        yield SqlOperator.DISTINCT
    if any(type(order) is exp.Order for order in statement.find_all(exp.Order)):
        yield SqlOperator.SORT
    if any(node.args.get("query") for node in statement.find_all(exp.In)):
        yield SqlOperator.MEMBERSHIP


def _joins(text: Text) -> Iterator[SqlOperator]:
    read_twice = [
        table.name.lower()
        for table in text.statement.find_all(exp.Table)
        if not table.db and table.name.lower() in text.streams
    ]
    if len(read_twice) > len(set(read_twice)):
        yield SqlOperator.TWICE
    for join in text.statement.find_all(exp.Join):
        if isinstance(join.this, exp.Lateral):
            continue
        select = join.parent_select
        source = select.args.get("from_") or select.args.get("from") if select else None
        both = (
            source is not None and text.streams_reach(source.this) and text.streams_reach(join.this)
        )
        yield SqlOperator.STREAM_JOIN if both else SqlOperator.STATIC_JOIN


def _functions(text: Text) -> Iterator[SqlOperator]:
    for node in _anonymous(text):
        if node.name.lower() in _TIMES:
            yield SqlOperator.CURRENT_TIME
        if node.name.lower() in _GENERATORS:
            yield SqlOperator.GENERATOR
    for hint in text.statement.find_all(exp.Hint):
        if any(expression.name.lower() in _REPARTITIONS for expression in hint.expressions):
            yield SqlOperator.REPARTITION


def _anonymous(text: Text) -> Iterator[exp.Anonymous]:
    """Yield calls of functions that sqlglot does not know, except in hints."""
    for node in text.statement.find_all(exp.Anonymous):
        if not node.find_ancestor(exp.Hint):
            yield node
