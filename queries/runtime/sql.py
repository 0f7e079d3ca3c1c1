"""Let a SQL text through only where it is a query: `spark.sql` runs commands at once.

`session.sql("DROP TABLE t")` has dropped the table when it returns, so the text is parsed
first, and every node of the parsed plan is looked at: inside WITH, and inside each part of
a union, where an INSERT may hide.
"""

import re
from collections.abc import Iterator
from typing import Any

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
#: Traits that every node that does something has.
_DOING = (f"{_LOGICAL}Command", f"{_LOGICAL}ParsedStatement")
#: Nodes that do something without these traits: scripts, EXECUTE IMMEDIATE, and whatever a
#: later Spark adds under such a name.
_DOING_NAME = re.compile(r"Command|Statement|CompoundBody|ExecuteImmediate|InsertInto|Script")


class QueryOnly(Exception):
    """The SQL text is no query over streaming sources."""


def require_query(session: Any, text: str) -> None:
    """Raise `QueryOnly` naming what the text would do, unless it is nothing but a query."""
    class_for = session._jvm.java.lang.Class.forName
    doing = [class_for(name) for name in _DOING]
    for node in parsed_nodes(session, text):
        name = str(node.getClass().getSimpleName())
        if _DOING_NAME.search(name) or any(kind.isInstance(node) for kind in doing):
            raise QueryOnly(
                f"the SQL text is a command ({name}), and only queries (SELECT, WITH, FROM, "
                "VALUES) are allowed"
            )


def parsed_nodes(session: Any, text: str) -> Iterator[Any]:
    """Yield every node of a text's parsed plan, before anything in it is looked up."""
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(text)
    yield from _nodes(plan, session._jvm.java.lang.Class.forName(f"{_LOGICAL}LogicalPlan"))


def _nodes(plan: Any, logical_plan: Any) -> Iterator[Any]:
    """Yield every node of a plan; what WITH holds are inner children, not children."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        for sequence in (node.children(), node.innerChildren(), node.subqueries()):
            members = [sequence.apply(index) for index in range(sequence.size())]
            # Inner children are anything that can be printed as a tree.
            waiting.extend(member for member in members if logical_plan.isInstance(member))
