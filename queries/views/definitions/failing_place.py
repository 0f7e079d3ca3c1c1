"""The position of an SQL error in a query's form, from the URL of a failure's action."""

from dataclasses import dataclass

from django.http import HttpRequest

from queries.selectors.definitions.definitions import QueryDefinition
from queries.views.console.numbers import whole


@dataclass(frozen=True, slots=True)
class FailingPlace:
    """Where a revision's SQL failed; line and column count from 1."""

    line: int
    column: int
    revision: int


def failing_place(request: HttpRequest, found: QueryDefinition) -> FailingPlace | None:
    """Return the position of the SQL error reported by a failure; None if the URL has none."""
    numbers = [whole(request.GET.get(name)) for name in ("line", "column", "of")]
    line, column, revision = (number or 0 for number in numbers)
    if not (line and column and any(one.number == revision for one in found.revisions)):
        return None
    return FailingPlace(line, column, revision)
