"""Find definite errors in SQL, and the operators that it uses, before it is passed to Spark.

sqlglot can parse most of Spark's SQL, but not all of it: SQL that it cannot parse is left to Spark,
which reports its own errors. Only SQL that Spark would certainly reject is rejected here.

Only operators that can be identified for certain from the SQL are reported. Anything that depends
on Spark's plan (such as whether the joined table is small enough to be broadcast) is left to a
preflight.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from queries.domain.definitions.spec import SqlQuery
from queries.domain.errors import Problem

_MODE_FIELD = "sink.output_mode"
#: Spark's variable substitution: these two prefixes read the JVM's variables (`ConfigReader`).
_OF_THE_PROCESS = re.compile(r"\$\{(?:env|system):[^}]*\}?")
#: The name of `window(…)` in a text that sqlglot cannot parse with it.
RENAMED_WINDOW = "window_of"
_WINDOW = re.compile(r"\bwindow\s*\(", re.IGNORECASE)


def sql_problems(spec: SqlQuery) -> list[Problem]:
    """Return the definite errors in a query's SQL and its sink's output mode."""
    if not spec.sql.strip():
        return [Problem("sql", "", "is empty.", "Write a SELECT over the sources.")]
    if match := _OF_THE_PROCESS.search(spec.sql):
        message = "reads from the driver process, not from the query's sources."
        return [Problem("sql", match[0], message, "Enter the value itself.")]
    statements = _statements(spec.sql)
    if statements is None:
        return []
    if len(statements) > 1:
        return [Problem("sql", spec.sql[:200], "contains several statements.", "Write one SELECT.")]
    if not statements or isinstance(statements[0], exp.Command):
        return []  # sqlglot parses anything unknown as a command: leave it to Spark
    statement = statements[0]
    if not isinstance(statement, exp.Query):
        message = f"is a {statement.key.upper()}, not a query."
        way_out = "Write a SELECT; the sink writes its rows."
        return [Problem("sql", spec.sql[:200], message, way_out)]
    text = Text(spec, statement)
    return text.unknown_names() or text.output_mode_problems()


def read(spec: SqlQuery) -> "Text | None":
    """Return a query's parsed SQL; None if only Spark can check it."""
    statement = parsed(spec.sql)
    return None if statement is None else Text(spec, statement)


def parsed(text: str) -> exp.Query | None:
    """Return the parsed statement; None if it is not one query, or only Spark can parse it.

    `window(…)` may have the name `RENAMED_WINDOW`.
    """
    statements = _statements(text) or []
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        return None
    return statements[0]


def paths_in(spec: SqlQuery) -> list[str]:
    """Return the paths that a query's SQL reads directly, as in json.`/data/flights`.

    Paths in SQL that sqlglot cannot parse are not found here; the driver checks Spark's own plan.
    """
    return sorted(
        {
            table.name
            for statement in _statements(spec.sql) or ()
            for table in statement.find_all(exp.Table)
            if table.db and ("/" in table.name or ":" in table.name)
        }
    )


def parameters(spec: SqlQuery) -> tuple[set[str], set[str]] | None:
    """Return the names of the SQL's parameters (`:name`), and other kinds of markers (`?`, `{x}`).

    None if only Spark can parse the SQL.
    """
    text = read(spec)
    if text is None:
        return None
    names, others = set(), set()
    for marker in text.statement.find_all(exp.Placeholder, exp.Parameter):
        if isinstance(marker, exp.Parameter):
            others |= {sign + marker.name for sign in "$@" if sign + marker.name in spec.sql}
        elif isinstance(marker.this, str):
            names.add(marker.this)
        elif isinstance(marker.this, exp.Identifier):
            others.add(f"{{{marker.name}}}")
        elif marker.this is None:
            others.add("?")
    return names, others


def catalog_names(spec: SqlQuery) -> set[str]:
    """Return the table names with a catalog in a query's SQL, such as lake.flights.delays."""
    return {
        ".".join(part.name for part in table.parts)
        for statement in _statements(spec.sql) or ()
        for table in statement.find_all(exp.Table)
        if table.catalog
    }


def _statements(text: str) -> list[exp.Expression] | None:
    """Return the parsed statements; None if they cannot be parsed.

    After GROUP BY, sqlglot interprets Spark's `window(…)` as the beginning of a WINDOW clause, so
    SQL that fails to parse is parsed again with the function renamed.
    """
    for candidate in (text, _WINDOW.sub(f"{RENAMED_WINDOW}(", text)):
        try:
            return [
                statement for statement in sqlglot.parse(candidate, dialect="spark") if statement
            ]
        except SqlglotError:
            continue
    return None


class Text:
    """Parsed SQL with the names that it can use."""

    def __init__(self, spec: SqlQuery, statement: exp.Query) -> None:
        self.spec = spec
        self.statement = statement
        self.streams = {source.name.lower() for source in spec.sources}
        self.statics = {table.name.lower() for table in spec.tables}
        self.ctes = {cte.alias_or_name.lower(): cte.this for cte in statement.find_all(exp.CTE)}
        self.opaque = statement.find(exp.Anonymous) is not None  # may be an aggregate, or not

    def unknown_names(self) -> list[Problem]:
        """Return a problem for each table that no source, table or WITH clause defines."""
        if any("catalog" in key or "hive" in key for key in self.spec.conf):
            return []
        readable = self.streams | self.statics | set(self.ctes)
        relation_names = {
            table.name.lower(): table.name
            for table in self.statement.find_all(exp.Table)
            if table.name and not table.db and isinstance(table.this, exp.Identifier)
        }
        problems = [
            Problem(
                "sql",
                name,
                f"reads {name}, which is neither a source nor a table of this query.",
                f"Available: {', '.join(sorted(self.streams | self.statics)) or 'none'}.",
            )
            for lower, name in relation_names.items()
            if lower not in readable
        ]
        if not problems and relation_names and not self.streams & set(relation_names):
            way_out = "Select from one of the sources."
            problems.append(Problem("sql", "", "does not read from a streaming source.", way_out))
        return problems

    def output_mode_problems(self) -> list[Problem]:
        """Return how the sink's output mode contradicts the SQL."""
        sink = self.spec.sink
        if sink is None:
            return []
        aggregates = any(self.streaming_aggregates())
        mode = sink.output_mode
        watermarked = "watermark" in self.spec.sql.lower() or any(
            source.watermark for source in self.spec.sources
        )
        if mode == "append" and aggregates and not watermarked:
            message = (
                "cannot be used for an aggregation without a watermark because no group would "
                "ever be final."
            )
            way_out = "Add a watermark to a source and group by it, or use update or complete."
            return [Problem(_MODE_FIELD, mode, message, way_out)]
        if mode == "complete" and not self._any_aggregate() and not self.opaque:
            message = "needs an aggregation, but the SQL does not contain one."
            return [Problem(_MODE_FIELD, mode, message, "Use append.")]
        if isinstance(self.statement, exp.Select) and self._sorts() and mode != "complete":
            message = f"cannot be used: a stream in {mode} mode cannot be sorted."
            way_out = "Remove ORDER BY, or aggregate and use output mode complete."
            return [Problem("sql", "ORDER BY", message, way_out)]
        return []

    def _sorts(self) -> bool:
        return self.statement.args.get("order") is not None

    def _any_aggregate(self) -> bool:
        return any(
            _aggregates(select) or select.args.get("distinct")
            for select in self.statement.find_all(exp.Select)
        )

    def streaming_aggregates(self) -> Iterator[exp.Select]:
        """Yield the SELECTs that aggregate over streaming rows."""
        for select in self.statement.find_all(exp.Select):
            if _aggregates(select) and self.streams_reach(select):
                yield select

    def streams_reach(self, query: exp.Expression, visited: frozenset[str] = frozenset()) -> bool:
        """Return whether streaming rows reach `query` through its FROM and JOIN clauses."""
        if isinstance(query, exp.SetOperation):
            return self.streams_reach(query.left, visited) or self.streams_reach(
                query.right, visited
            )
        if isinstance(query, exp.Subquery):
            return self.streams_reach(query.this, visited)
        if isinstance(query, exp.Table):
            name = query.name.lower()
            if name in self.ctes and name not in visited:
                return self.streams_reach(self.ctes[name], visited | {name})
            return not query.db and name in self.streams
        source = query.args.get("from_") or query.args.get("from")
        inputs = [source.this] if source is not None else []
        inputs += [join.this for join in query.args.get("joins") or []]
        return any(self.streams_reach(relation, visited) for relation in inputs)


def _aggregates(select: exp.Select) -> bool:
    """Return whether this SELECT itself, not a nested one, groups or aggregates."""
    if select.args.get("group") is not None:
        return True
    return any(
        isinstance(node, exp.AggFunc) and not node.find_ancestor(exp.Window)
        for projection in select.expressions
        for node in projection.walk(prune=lambda inner: isinstance(inner, exp.Query))
    )


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
    """The operators of a SQL statement, and the parts that are unknown."""

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
    """Return the operators used by a query's SQL."""
    marked = {SqlOperator.WATERMARK for source in spec.sources if source.watermark}
    text = read(spec)
    if text is None:
        return Operators(frozenset(marked), readable=False)
    sql_operators = marked | set(_named(text)) | set(_joins(text)) | set(_functions(text))
    unknown = {node.name.lower() for node in _anonymous(text)} - _TIMES - _GENERATORS - _WINDOWS
    return Operators(frozenset(sql_operators), unknown=tuple(sorted(unknown)))


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
