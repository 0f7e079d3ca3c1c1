"""Walk a parsed plan, before anything in it is resolved: what it would do, and what it reads.

A driver uses this before `spark.sql`, which runs commands immediately, and the parser's process
before a text is saved. Both must see the same nodes.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from queries.domain.definitions.sql_reads import MOST_RELATIONS, SqlReads

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
_CATALYST = "org.apache.spark.sql.catalyst."
#: Traits of every node that changes something; the last is that of CALL, which runs a catalog's
#: procedure, such as Iceberg's remove_orphan_files.
_DOING = (
    f"{_LOGICAL}Command",
    f"{_LOGICAL}ParsedStatement",
    f"{_LOGICAL}ExecutableDuringAnalysis",
)
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
    """A driver would refuse the text, whatever tables exist; the message contains the remedy."""


class PlanNode(NamedTuple):
    """A node of a parsed plan, and the names in lower case that WITH defines where it stands."""

    plan: Any
    kind: str  # its class
    ctes: frozenset[str]


def nodes(plan: Any, parser: Any, jvm: Any) -> Iterator[PlanNode]:
    """Yield every node of a parsed plan.

    IDENTIFIER('name') counts as what it stands for, which older Sparks resolve only later.
    """
    logical_plan = jvm.java.lang.Class.forName(f"{_LOGICAL}LogicalPlan")
    waiting = [(plan, frozenset[str]())]
    while waiting:
        node, ctes = waiting.pop()
        kind = kind_of(node)
        yield PlanNode(node, kind, ctes)
        if kind == "UnresolvedWith":
            for definition in members(node.cteRelations()):
                own = str(definition.productElement(0)).lower()
                inside = ctes | {own} if node.allowRecursion() else ctes
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
    doing = [jvm.java.lang.Class.forName(name) for name in _DOING]
    for node in plan_nodes:
        if _DOING_NAME.search(node.kind) or any(kind.isInstance(node.plan) for kind in doing):
            yield node.kind


def refusal(text: str, plan_nodes: Iterable[PlanNode], jvm: Any) -> str:
    """Return why every driver would refuse a parsed text; "" if none does for the text alone."""
    plan_nodes = list(plan_nodes)
    for kind in commands(plan_nodes, jvm):
        return f"It is a command ({kind}); only queries (SELECT, WITH, FROM, VALUES) are allowed."
    try:
        for node in plan_nodes:
            require_named_table(node)
            if "IDENTIFIER" in text.upper():
                for called in calls(node):
                    require_function(called)
    except SqlRefused as error:
        message = str(error)
        return f"{message[0].upper()}{message[1:]}"
    return ""


def require_named_table(node: PlanNode) -> None:
    """Raise `Refused` if a node reads a table that only its execution decides."""
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


def require_function(called: Any) -> None:
    """Raise `Refused` if an expression calls a function whose name is in IDENTIFIER()."""
    if kind_of(called) == FUNCTION_BY_NAME and not called.otherExprs().isEmpty():
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
    """Return the members of a Scala sequence as texts."""
    return [str(member) for member in members(sequence)]


def members(sequence: Any) -> list[Any]:
    """Return the members of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]
