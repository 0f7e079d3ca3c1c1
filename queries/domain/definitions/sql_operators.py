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


class Operator(StrEnum):
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
KEEPS_STATE = frozenset({Operator.AGGREGATION, Operator.DISTINCT})


@dataclass(frozen=True, slots=True)
class Operators:
    """A text's operators, and the parts that are unknown."""

    found: frozenset[Operator] = frozenset()
    readable: bool = True  # whether Headgate can parse the text; otherwise only Spark can check it
    unknown: tuple[str, ...] = ()  # functions with unknown effect


_NODES: tuple[tuple[Operator, tuple[type[exp.Expression], ...]], ...] = (
    (Operator.UNION, (exp.SetOperation,)),
    (Operator.LIMIT, (exp.Limit, exp.Offset)),
    (Operator.SORT, (exp.Sort,)),
    (Operator.WINDOW, (exp.Window,)),
    (
        Operator.GENERATOR,
        (exp.Explode, exp.Posexplode, exp.Inline, exp.Stack, exp.Lateral),
    ),
    (
        Operator.CURRENT_TIME,
        (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Localtimestamp),
    ),
    (Operator.SAMPLE, (exp.TableSample,)),
    (Operator.SHUFFLE, (exp.Distribute, exp.Cluster)),
    (Operator.MEMBERSHIP, (exp.Exists,)),
    (Operator.AGGREGATION, (exp.Pivot,)),
)
_TIMES = frozenset({"now", "curdate", "current_timezone"})
_GENERATORS = frozenset({"json_tuple", "inline_outer", "variant_explode"})
#: Event-time functions: they are used in a GROUP BY, which is found as an aggregation.
_WINDOWS = frozenset({"window", "window_of", "window_time", "session_window"})
_REPARTITIONS = frozenset({"repartition", "repartition_by_range", "rebalance", "coalesce"})


def operators(spec: SqlQuery) -> Operators:
    """Return the operators that a query's SQL text uses."""
    marked = {Operator.WATERMARK for source in spec.sources if source.watermark}
    text = read(spec)
    if text is None:
        return Operators(frozenset(marked), readable=False)
    found = marked | set(_named(text)) | set(_joins(text)) | set(_functions(text))
    unknown = {node.name.lower() for node in _anonymous(text)} - _TIMES - _GENERATORS - _WINDOWS
    return Operators(frozenset(found), unknown=tuple(sorted(unknown)))


def _named(text: Text) -> Iterator[Operator]:
    statement = text.statement
    for operator, nodes in _NODES:
        if statement.find(*nodes):
            yield operator
    if text.ctes:
        yield Operator.WITH
    if any(text.streaming_aggregates()):
        yield Operator.AGGREGATION
    united = [one for one in statement.find_all(exp.SetOperation) if one.args.get("distinct")]
    if united or any(select.args.get("distinct") for select in statement.find_all(exp.Select)):
        yield Operator.DISTINCT
    if any(type(order) is exp.Order for order in statement.find_all(exp.Order)):
        yield Operator.SORT
    if any(one.args.get("query") for one in statement.find_all(exp.In)):
        yield Operator.MEMBERSHIP


def _joins(text: Text) -> Iterator[Operator]:
    read_twice = [
        table.name.lower()
        for table in text.statement.find_all(exp.Table)
        if not table.db and table.name.lower() in text.streams
    ]
    if len(read_twice) > len(set(read_twice)):
        yield Operator.TWICE
    for join in text.statement.find_all(exp.Join):
        if isinstance(join.this, exp.Lateral):
            continue
        select = join.parent_select
        source = select.args.get("from_") or select.args.get("from") if select else None
        both = (
            source is not None and text.streams_reach(source.this) and text.streams_reach(join.this)
        )
        yield Operator.STREAM_JOIN if both else Operator.STATIC_JOIN


def _functions(text: Text) -> Iterator[Operator]:
    for node in _anonymous(text):
        if node.name.lower() in _TIMES:
            yield Operator.CURRENT_TIME
        if node.name.lower() in _GENERATORS:
            yield Operator.GENERATOR
    for hint in text.statement.find_all(exp.Hint):
        if any(one.name.lower() in _REPARTITIONS for one in hint.expressions):
            yield Operator.REPARTITION


def _anonymous(text: Text) -> Iterator[exp.Anonymous]:
    """Yield calls of functions that sqlglot does not know, except in hints."""
    for node in text.statement.find_all(exp.Anonymous):
        if not node.find_ancestor(exp.Hint):
            yield node
