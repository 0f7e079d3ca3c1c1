"""What the async operators of a query did lately, read from its stored progress."""

from typing import Any

from listeners import selectors as heard
from queries.domain.async_calls import Advice, Operator, advise, operators

#: Progress events that are looked at: enough that the limiter has been on other numbers too.
LOOKED_AT = 200


def async_operators(query_id: int) -> list[tuple[Operator, Advice]]:
    """Return a query's async operators with what bounds each, by name; [] where it has none."""
    rows = heard.progress_page(query_id, limit=LOOKED_AT)
    found: list[dict[str, Any]] = [row["progress"] for row in rows]
    return [(one, advise(one)) for one in operators(found)]
