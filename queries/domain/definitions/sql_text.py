"""Find what is certainly wrong with a SQL text before Spark sees it.

sqlglot parses most of Spark's SQL, not all of it: what it cannot parse is left to Spark, which
has its own message. Only what Spark would certainly refuse is refused here.
"""

import re
from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from queries.domain.definitions.spec import SqlQuery
from queries.domain.errors import Problem

_MODE_FIELD = "sink.output_mode"
#: Spark's substitution of variables: these two prefixes read the JVM's (`ConfigReader`).
_OF_THE_PROCESS = re.compile(r"\$\{(?:env|system):[^}]*\}?")
_WINDOW = re.compile(r"\bwindow\s*\(", re.IGNORECASE)


def sql_problems(spec: SqlQuery) -> list[Problem]:
    """Return what is certainly wrong with a query's text and its sink's output mode."""
    if not spec.sql.strip():
        return [Problem("sql", "", "is empty.", "Write a SELECT over the sources.")]
    if found := _OF_THE_PROCESS.search(spec.sql):
        message = "reads what the driver's process has, not what its sources have."
        return [Problem("sql", found[0], message, "Write the value itself.")]
    statements = _statements(spec.sql)
    if statements is None:
        return []
    if len(statements) > 1:
        return [Problem("sql", spec.sql[:200], "contains several statements.", "Write one SELECT.")]
    if not statements or isinstance(statements[0], exp.Command):
        return []  # sqlglot takes what it cannot parse for a command: Spark decides
    statement = statements[0]
    if not isinstance(statement, exp.Query):
        message = f"is a {statement.key.upper()}, not a query."
        way_out = "Write a SELECT; the sink writes its rows."
        return [Problem("sql", spec.sql[:200], message, way_out)]
    text = Text(spec, statement)
    return text.unknown_names() or text.output_mode_problems()


def read(spec: SqlQuery) -> "Text | None":
    """Return a query's text as it can be read; None where only Spark can judge it."""
    statements = _statements(spec.sql) or []
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        return None
    return Text(spec, statements[0])


def paths_in(spec: SqlQuery) -> list[str]:
    """Return the paths that a query's text reads directly, as in json.`/data/flights`.

    What sqlglot cannot parse is not found here; the driver looks at Spark's own plan.
    """
    return sorted(
        {
            table.name
            for statement in _statements(spec.sql) or ()
            for table in statement.find_all(exp.Table)
            if table.db and ("/" in table.name or ":" in table.name)
        }
    )


def _statements(text: str) -> list[exp.Expression] | None:
    """Return a text's statements; None where they cannot be read.

    After GROUP BY sqlglot takes Spark's `window(…)` for the beginning of a WINDOW clause, so a
    text that it cannot read is read once more with the function under another name.
    """
    for tried in (text, _WINDOW.sub("window_of(", text)):
        try:
            return [each for each in sqlglot.parse(tried, dialect="spark") if each]
        except SqlglotError:
            continue
    return None


class Text:
    """A parsed text with the names it may use."""

    def __init__(self, spec: SqlQuery, statement: exp.Query) -> None:
        self.spec = spec
        self.statement = statement
        self.streams = {source.name.lower() for source in spec.sources}
        self.statics = {table.name.lower() for table in spec.tables}
        self.ctes = {cte.alias_or_name.lower(): cte.this for cte in statement.find_all(exp.CTE)}
        self.opaque = statement.find(exp.Anonymous) is not None  # may be an aggregate, or not

    def unknown_names(self) -> list[Problem]:
        """Return the tables that no source, table or WITH gives."""
        if any("catalog" in key or "hive" in key for key in self.spec.conf):
            return []
        known = self.streams | self.statics | set(self.ctes)
        used = {
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
            for lower, name in used.items()
            if lower not in known
        ]
        if not problems and used and not self.streams & set(used):
            way_out = "Select from one of the sources."
            problems.append(Problem("sql", "", "reads no streaming source.", way_out))
        return problems

    def output_mode_problems(self) -> list[Problem]:
        """Return how the sink's output mode contradicts the text."""
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
                "cannot be used for an aggregation without a watermark: "
                "no group would ever be final."
            )
            way_out = "Give a source a watermark and group by it, or use update or complete."
            return [Problem(_MODE_FIELD, mode, message, way_out)]
        if mode == "complete" and not self._any_aggregate() and not self.opaque:
            message = "needs an aggregation, but the text has none."
            return [Problem(_MODE_FIELD, mode, message, "Use append.")]
        if isinstance(self.statement, exp.Select) and self._sorts() and mode != "complete":
            message = f"a stream in {mode} mode cannot be sorted."
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
        """Yield the SELECTs that aggregate over rows of a stream."""
        for select in self.statement.find_all(exp.Select):
            if _aggregates(select) and self.streams_reach(select):
                yield select

    def streams_reach(self, query: exp.Expression, seen: frozenset[str] = frozenset()) -> bool:
        """Return whether rows of a stream reach `query` through its FROM and JOINs."""
        if isinstance(query, exp.SetOperation):
            return self.streams_reach(query.left, seen) or self.streams_reach(query.right, seen)
        if isinstance(query, exp.Subquery):
            return self.streams_reach(query.this, seen)
        if isinstance(query, exp.Table):
            name = query.name.lower()
            if name in self.ctes and name not in seen:
                return self.streams_reach(self.ctes[name], seen | {name})
            return not query.db and name in self.streams
        source = query.args.get("from_") or query.args.get("from")
        inputs = [source.this] if source is not None else []
        inputs += [join.this for join in query.args.get("joins") or []]
        return any(self.streams_reach(each, seen) for each in inputs)


def _aggregates(select: exp.Select) -> bool:
    """Return whether this SELECT itself, not one inside it, groups or aggregates."""
    if select.args.get("group") is not None:
        return True
    return any(
        isinstance(node, exp.AggFunc) and not node.find_ancestor(exp.Window)
        for projection in select.expressions
        for node in projection.walk(prune=lambda inner: isinstance(inner, exp.Query))
    )
