"""Run Spark's own analyzer without a session, and read parsed and analyzed plans.

Only parts on which state depends are included: keys, aggregates, filters, watermarks, joins, and
how columns are derived from others. `queries.domain.probes.plan_shapes` interprets the result.

A driver uses this before `spark.sql`, which runs commands immediately, and the parser's process
uses it before SQL is saved. Both must see the same nodes.

Catalyst resolves SQL against temporary views in an in-memory catalog. No other part of Spark runs:
there is no context and no data source, and no file is opened.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from headgate_ground import spark_names
from queries.domain.definitions.sql_verdict import MOST_RELATIONS, SqlQuestion, SqlReads, View

_CATALYST = "org.apache.spark.sql.catalyst."
#: Nodes that are not queries and do not have these traits: scripts, EXECUTE IMMEDIATE, Delta's
#: DESCRIBE HISTORY, and anything that a later Spark adds under such a name.
_DOING_NAME = re.compile(
    r"Command|Describe|Statement|CompoundBody|ExecuteImmediate|InsertInto|Script"
)
#: Nodes that hold a relation as a field: `t VERSION AS OF 1`, `t CHANGES FROM VERSION 1`.
_HOLDING = ("RelationTimeTravel", "RelationChanges")
_BY_NAME = "PlanWithUnresolvedIdentifier"
#: A column or a function call by IDENTIFIER().
FUNCTION_BY_NAME = "ExpressionWithUnresolvedIdentifier"
#: Delta's functions that read the changes of any table.
_CHANGES = ("table_changes", "table_changes_by_path")


class SqlRefused(Exception):
    """A driver would reject the SQL, whatever tables exist; the message contains the remedy."""


class PlanNode(NamedTuple):
    """A node of a parsed plan, and the names (in lower case) that WITH defines at that point."""

    plan: Any
    kind: str  # its class
    ctes: frozenset[str]


def nodes(plan: Any, parser: Any, jvm: Any) -> Iterator[PlanNode]:
    """Yield every node of a parsed plan.

    IDENTIFIER('name') counts as the name itself, which older Sparks resolve only later.
    """
    (logical_plan,) = spark_names.classes([spark_names.LOGICAL_PLAN], jvm)
    waiting = [(plan, frozenset[str]())]
    while waiting:
        node, ctes = waiting.pop()
        kind = kind_of(node)
        yield PlanNode(node, kind, ctes)
        if kind == "UnresolvedWith":
            for definition in members(node.cteRelations()):
                own = str(definition.productElement(0)).lower()
                inside = ctes | {own} if spark_names.is_recursive(node, jvm) else ctes
                waiting.append((definition.productElement(1), inside))
                ctes |= {own}  # seen by the definitions after it
            waiting.append((node.child(), ctes))
            continue
        if kind in _HOLDING:
            waiting.append((node.relation(), ctes))
        elif kind == _BY_NAME and _is_literal(node.identifierExpr()):
            parts = parser.parseMultipartIdentifier(str(node.identifierExpr().value()))
            waiting.append((node.planBuilder().apply(parts, node.children()), ctes))
            continue  # its children are inside of what was built
        for sequence in (node.children(), node.innerChildren(), node.subqueries()):
            # Inner children may be anything that can be printed as a tree.
            inner = (child for child in members(sequence) if logical_plan.isInstance(child))
            waiting.extend((child, ctes) for child in inner)


def commands(plan_nodes: Iterable[PlanNode], jvm: Any) -> Iterator[str]:
    """Yield the kinds of the nodes that would do something: everything else is a query."""
    doing = spark_names.classes(spark_names.COMMANDS, jvm)
    for node in plan_nodes:
        if _DOING_NAME.search(node.kind) or any(kind.isInstance(node.plan) for kind in doing):
            yield node.kind


def refusal(text: str, plan_nodes: Iterable[PlanNode], jvm: Any) -> str:
    """Return why every driver would reject the parsed SQL; "" if the SQL alone is no reason."""
    plan_nodes = list(plan_nodes)
    for kind in commands(plan_nodes, jvm):
        return f"It is a command ({kind}); only queries (SELECT, WITH, FROM, VALUES) are allowed."
    try:
        for node in plan_nodes:
            require_named_table(node)
            if "IDENTIFIER" in text.upper():
                for called in calls(node):
                    require_function(called, jvm)
    except SqlRefused as error:
        message = str(error)
        return f"{message[0].upper()}{message[1:]}"
    return ""


def require_named_table(node: PlanNode) -> None:
    """Raise `SqlRefused` if a node reads a table that only its execution decides."""
    match node.kind:
        case "PlanWithUnresolvedIdentifier" if not _is_literal(node.plan.identifierExpr()):
            raise SqlRefused(
                "the SQL uses IDENTIFIER() with a parameter or an expression. Write the table's "
                "name, or IDENTIFIER('name'). A query reads the same tables in each run."
            )
        case "UnresolvedTableValuedFunction" if _last(node.plan.name()).lower() in _CHANGES:
            raise SqlRefused(
                f"the SQL calls {_last(node.plan.name()).lower()}(), which is not allowed. Add a "
                "delta source with the option readChangeFeed."
            )


def calls(node: PlanNode) -> Iterator[Any]:
    """Yield the function calls in a node, with names, including those in WINDOW clauses."""
    waiting = members(node.plan.expressions())
    if node.kind == "WithWindowDefinition":
        waiting += members(node.plan.windowDefinitions().values().toSeq())
    while waiting:
        expression = waiting.pop()
        if kind_of(expression) in ("UnresolvedFunction", FUNCTION_BY_NAME):
            yield expression
        waiting += members(expression.children())


def require_function(called: Any, jvm: Any) -> None:
    """Raise `SqlRefused` if an expression calls a function whose name is in IDENTIFIER()."""
    if kind_of(called) == FUNCTION_BY_NAME and spark_names.is_call(called, jvm):
        raise SqlRefused("the SQL calls a function through IDENTIFIER(). Use the function's name.")


def reads_of(plan_nodes: Iterable[PlanNode], jvm: Any) -> SqlReads:
    """Return the relations that a parsed query reads, except those that WITH defines."""
    relations: dict[tuple[str, ...], None] = {}
    unknown: dict[str, None] = {}
    for node in plan_nodes:
        match node.kind:
            case "UnresolvedRelation":
                parts = tuple(texts(node.plan.multipartIdentifier()))
                if len(parts) > 1 or parts[0].lower() not in node.ctes:
                    relations[parts] = None
            case "PlanWithUnresolvedIdentifier" if not _is_literal(node.plan.identifierExpr()):
                unknown["IDENTIFIER() has a parameter or an expression"] = None
            case "UnresolvedTableValuedFunction" if not _is_builtin(node.plan, jvm):
                unknown[f"the table function {_last(node.plan.name())[:100]}() may read any"] = None
    if len(relations) > MOST_RELATIONS:
        return SqlReads(unknown=(f"it names more than {MOST_RELATIONS:,} tables",))
    return SqlReads(tuple(sorted(relations)), tuple(unknown))


def _is_literal(expression: Any) -> bool:
    return kind_of(expression) == "Literal"


def _is_builtin(node: Any, jvm: Any) -> bool:
    """Return whether a table function is one of Spark's own, which read no table by its name."""
    named = texts(node.name())
    registry = f"{_CATALYST}analysis.TableFunctionRegistry$"
    registry_object = jvm.java.lang.Class.forName(registry).getField("MODULE$").get(None)
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(named[-1].lower())
    return len(named) == 1 and bool(registry_object.builtin().functionExists(identifier))


def kind_of(node: Any) -> str:
    """Return the name of a node's class."""
    return str(node.getClass().getSimpleName())


def _last(sequence: Any) -> str:
    return texts(sequence)[-1]


def texts(sequence: Any) -> list[str]:
    """Return the members of a Scala sequence as strings."""
    return [str(member) for member in members(sequence)]


def members(sequence: Any) -> list[Any]:
    """Return the members of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]


#: Nodes that only name what is below them.
_TRANSPARENT = frozenset({"SubqueryAlias", "View", "ResolvedHint", "CollectMetrics"})


def nodes_of(plan: Any) -> dict[str, Any]:
    """Return the JVM's analyzed plan as `{"op", "streaming", "children", …}`."""
    return _node(plan, {})


def _node(plan: Any, definitions: dict[int, Any]) -> dict[str, Any]:
    op = kind_of(plan)
    if op == "WithCTE":
        for definition in members(plan.cteDefs()):
            definitions[int(definition.id())] = definition.child()
        return _node(plan.plan(), definitions)
    if op == "CTERelationRef":
        return _reference(plan, definitions)
    children = members(plan.children())
    if op in _TRANSPARENT and len(children) == 1:
        return _node(children[0], definitions)
    return {
        "op": op,
        "streaming": bool(plan.isStreaming()),
        **_parts(plan, op),
        "children": [_node(child, definitions) for child in children],
    }


def _reference(plan: Any, definitions: dict[int, Any]) -> dict[str, Any]:
    """Return a relation that WITH defines, with its columns' names as they are used."""
    child = definitions[int(plan.cteId())]
    names, defined_names = _texts(plan.output()), _texts(child.output())
    return {
        "op": "Rename",
        "streaming": bool(plan.isStreaming()),
        "columns": [[a, b] for a, b in zip(names, defined_names, strict=False) if a != b],
        "children": [_node(child, definitions)],
    }


def _parts(plan: Any, op: str) -> dict[str, Any]:
    match op:
        case "Aggregate":
            expressions = members(plan.aggregateExpressions())
            return {
                "keys": _texts(plan.groupingExpressions()),
                "expressions": [_text(expression) for expression in expressions],
                "aggregates": list(
                    dict.fromkeys(a for expression in expressions for a in _inside(expression))
                ),
            }
        case "Project":
            return {"expressions": _texts(plan.projectList())}
        case "Expand":
            rows = [_texts(row) for row in members(plan.projections())]
            return {"projections": rows, "output": _texts(plan.output())}
        case "Filter":
            return {"condition": _text(plan.condition())}
        case "Join":
            condition = plan.condition()
            text = _text(condition.get()) if condition.isDefined() else ""
            return {"join": _text(plan.joinType()), "condition": text}
        case "EventTimeWatermark":
            return {"column": _text(plan.eventTime()), "delay": _text(plan.delay())}
        case "Deduplicate" | "DeduplicateWithinWatermark":
            return {"keys": _texts(plan.keys())}
        case "StreamingRelation" | "StreamingRelationV2" | "LogicalRelation" | "LocalRelation":
            return {}
        case _:
            return {"text": str(plan.simpleString(1000)).lstrip("~ ")}


def _inside(expression: Any) -> list[str]:
    """Return the aggregate functions within an expression."""
    if kind_of(expression) == "AggregateExpression":
        return [_text(expression)]
    return [aggregate for child in members(expression.children()) for aggregate in _inside(child)]


def _texts(sequence: Any) -> list[str]:
    return [_text(member) for member in members(sequence)]


def _text(value: Any) -> str:
    return str(value.toString())


_ANALYZER_CATALYST = "org.apache.spark.sql.catalyst"
#: `CatalogTable.VIEW_STORING_ANALYZED_PLAN`: the view contains its plan, not a text.
_HOLDS_PLAN = "view.storingAnalyzedPlan"
#: Otherwise a schema in a text, such as that of `from_json`, names a class that is instantiated.
_CLASSES_BY_SCHEMA = "spark.sql.udt.allowCreatingUDTFromString"


class Analyzer:
    """A catalog and an analyzer in a JVM, for analyzing one SQL statement."""

    def __init__(self, jvm: Any, question: SqlQuestion) -> None:
        self._jvm = jvm
        self._sql = jvm.org.apache.spark.sql
        self._none = jvm.scala.Option.empty()
        conf = self._object("org.apache.spark.sql.internal.SQLConf").get()
        conf.clear()  # from the previous question; a gateway thread keeps its own
        for key, value in question.conf.items():
            conf.setConfString(key, value)
        conf.setConfString(_CLASSES_BY_SCHEMA, "false")
        catalyst = self._sql.catalyst
        registry = f"{_ANALYZER_CATALYST}.analysis."
        self._catalog = catalyst.catalog.SessionCatalog(
            catalyst.catalog.InMemoryCatalog(
                jvm.org.apache.spark.SparkConf(False),
                jvm.org.apache.hadoop.conf.Configuration(False),
            ),
            self._object(f"{registry}FunctionRegistry").builtin().clone(),
            self._object(f"{registry}TableFunctionRegistry").builtin().clone(),
            conf,
        )
        self._analyzer = catalyst.analysis.Analyzer(self._catalog)
        self._params = question.params
        for view in question.views:
            self._create(view)

    def plan(self, parsed_plan: Any) -> Any:
        """Return the analyzed plan of parsed SQL; py4j raises Spark's errors."""
        return self._analyzed(self._bound(parsed_plan) if self._params else parsed_plan)

    def _analyzed(self, parsed_plan: Any) -> Any:
        tracker = self._sql.catalyst.QueryPlanningTracker(self._none)
        return self._analyzer.executeAndCheck(parsed_plan, tracker)

    def _bound(self, parsed_plan: Any) -> Any:
        """Bind parameter values to parsed SQL, as `spark.sql(text, args=…)` does."""
        values = self._jvm.java.util.HashMap()
        literal = self._object(f"{_ANALYZER_CATALYST}.expressions.Literal")
        for name, value in self._params.items():
            values.put(name, literal.apply(value))
        named = self._object(f"{_ANALYZER_CATALYST}.analysis.NameParameterizedQuery")
        of_scala = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(values)
        return named.apply(parsed_plan, of_scala)

    def _create(self, view: View) -> None:
        plan = self._relation(view)
        if view.watermark is not None:
            column, delay = view.watermark
            parts = self._object(f"{_ANALYZER_CATALYST}.analysis.UnresolvedAttribute")
            interval = self._object(f"{_ANALYZER_CATALYST}.util.IntervalUtils")
            text = self._jvm.org.apache.spark.unsafe.types.UTF8String.fromString(delay)
            plan = self._analyzed(
                spark_names.with_watermark(
                    parts.quotedString(column), interval.stringToInterval(text), plan, self._jvm
                )
            )
        self._catalog.createTempView(view.name, self._view(view.name, plan), True)

    def _relation(self, view: View) -> Any:
        schema = self._object("org.apache.spark.sql.types.StructType").fromDDL(view.columns)
        attributes = self._object(f"{_ANALYZER_CATALYST}.types.DataTypeUtils").toAttributes(schema)
        rows = self._object("scala.collection.immutable.Nil")
        name = f"{_ANALYZER_CATALYST}.plans.logical.LocalRelation"
        given = (attributes, rows, view.streaming)
        return self._object(name).apply(*given, *self._defaults(name, len(given)))

    def _view(self, name: str, plan: Any) -> Any:
        """Return a temporary view as `Dataset.createTempView` creates it."""
        named_arguments = {
            "identifier": self._sql.catalyst.TableIdentifier(name),
            "tableType": self._object(f"{_ANALYZER_CATALYST}.catalog.CatalogTableType").VIEW(),
            "storage": self._object(f"{_ANALYZER_CATALYST}.catalog.CatalogStorageFormat").empty(),
            "schema": plan.schema(),
        }
        name = f"{_ANALYZER_CATALYST}.catalog.CatalogTable"
        types = [parameter.getSimpleName() for parameter in self._parameters(name)]
        arguments = list(named_arguments.values())
        arguments += self._defaults(name, len(arguments))
        empty = self._object("scala.Predef").Map().empty()
        arguments[types.index("Map")] = empty.updated(_HOLDS_PLAN, "true")  # its properties
        catalog_table = self._sql.catalyst.catalog.CatalogTable(*arguments)
        option = self._jvm.scala.Option.apply(plan)
        return self._sql.catalyst.catalog.TemporaryViewRelation(catalog_table, option)

    def _defaults(self, name: str, given: int) -> list[Any]:
        """Return the defaults of a case class for the parameters after the first `given`."""
        positions = range(given + 1, len(self._parameters(name)) + 1)
        return [
            getattr(self._object(name), f"apply$default${position}")() for position in positions
        ]

    def _parameters(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name).getConstructors()[0].getParameterTypes()

    def _object(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)
