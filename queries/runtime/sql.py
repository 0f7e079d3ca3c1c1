"""Accept SQL text only if it is a query: `spark.sql` runs commands immediately.

By the time `session.sql("DROP TABLE t")` returns, the table has been dropped. So the text is parsed
first, and every node of the parsed plan is checked, including those inside WITH and inside each
part of a union, where an INSERT could be hidden.
"""

from collections.abc import Iterator
from typing import Any

from queries.spark_parser.parsed import PlanNode, commands, nodes


class QueryOnly(Exception):
    """The SQL text is not a query over streaming sources."""


def require_query(session: Any, text: str) -> None:
    """Raise `QueryOnly`, which says what the text would do, unless the text is only a query."""
    for name in commands(parsed_nodes(session, text), session._jvm):
        raise QueryOnly(
            f"the SQL is a command ({name}); only queries (SELECT, WITH, FROM, VALUES) are allowed"
        )


def parsed_nodes(session: Any, text: str) -> Iterator[PlanNode]:
    """Yield every node of a text's parsed plan, before anything in it is resolved."""
    parser = session._jsparkSession.sessionState().sqlParser()
    return nodes(parser.parsePlan(text), parser, session._jvm)
