"""Accept SQL text only if it is a query: `spark.sql` runs commands immediately.

By the time `session.sql("DROP TABLE t")` returns, the table has been dropped. So the text is parsed
first, and every node of the parsed plan is checked, including those inside WITH and inside each
part of a union, where an INSERT could be hidden.
"""

import re
from collections.abc import Iterator
from typing import Any

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
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


class QueryOnly(Exception):
    """The SQL text is not a query over streaming sources."""


def require_query(session: Any, text: str) -> None:
    """Raise `QueryOnly`, which says what the text would do, unless the text is only a query."""
    class_for = session._jvm.java.lang.Class.forName
    doing = [class_for(name) for name in _DOING]
    for node in parsed_nodes(session, text):
        name = str(node.getClass().getSimpleName())
        if _DOING_NAME.search(name) or any(kind.isInstance(node) for kind in doing):
            raise QueryOnly(
                f"the SQL is a command ({name}); only queries (SELECT, WITH, FROM, VALUES) are "
                "allowed"
            )


def parsed_nodes(session: Any, text: str) -> Iterator[Any]:
    """Yield every node of a text's parsed plan, before anything in it is resolved."""
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(text)
    yield from _nodes(plan, session._jvm.java.lang.Class.forName(f"{_LOGICAL}LogicalPlan"))


def _nodes(plan: Any, logical_plan: Any) -> Iterator[Any]:
    """Yield every node of a plan; the contents of WITH are inner children, not children."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        for sequence in (node.children(), node.innerChildren(), node.subqueries()):
            members = [sequence.apply(index) for index in range(sequence.size())]
            # Inner children may be anything that can be printed as a tree.
            waiting.extend(member for member in members if logical_plan.isInstance(member))
