"""The input of the query editor: form fields or the API's JSON, each in its own tab, or a URL.

The URL of a failure's action specifies where the SQL failed.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, QueryDict

from queries.domain.characters import refuse_characters
from queries.domain.errors import Invalid, Problem
from queries.selectors.definitions.definitions import QueryDefinition
from queries.views.console.numbers import whole
from queries.views.definitions.query_bundle import Bundle, blank, of_body, posted

FORM, JSON = "form", "json"


@dataclass(slots=True)
class DefinitionInput:
    """One page's input: the open tab, its fields or its text, and the errors in them."""

    tab: str
    bundle: Bundle
    text: str = ""
    problems: list[Problem] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)  # connectors that the application lacks
    failing: Problem | None = None  # the first whose line in the SQL is known

    @classmethod
    def read(cls, data: QueryDict) -> "DefinitionInput":
        """Return the input that a browser sent."""
        if data.get("tab") == JSON:
            return cls(JSON, blank(), text=data.get("json", ""))
        return cls(FORM, posted(data))

    @classmethod
    def of(cls, body: Mapping[str, Any], tab: str = FORM) -> "DefinitionInput":
        """Return the page for an API request body."""
        return cls(tab, of_body(body), text=_dumps(body))

    def body(self) -> dict[str, Any]:
        """Return the API request body; raise `Invalid` if it cannot be parsed at all."""
        if self.tab == JSON:
            return _loads(self.text)
        if not self.bundle.is_valid():
            raise Invalid([])
        return self.bundle.body()

    def acted(self, act: str) -> "DefinitionInput":
        """Return the page after a button that only changes the page: a new row, another tab."""
        if act not in ("to-json", "to-form"):
            return DefinitionInput(FORM, self.bundle.reshaped(act))
        try:
            body = self.body()
        except Invalid as error:
            self.show(error.problems)
            return self
        return DefinitionInput.of(body, JSON if act == "to-json" else FORM)

    def show(self, problems: Iterable[Problem]) -> None:
        """Show each problem next to the field that it concerns."""
        problems = list(problems)
        self.needed = sorted({one.connector for one in problems if one.connector})
        self.failing = next((one for one in problems if one.line is not None), None)
        if self.tab == JSON:
            self.problems += problems
        else:
            self.bundle.show(problems)


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


def _dumps(body: Mapping[str, Any]) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False)


def _loads(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Invalid([Problem("JSON", "", f"cannot be read: {error.msg} at {where}.")]) from error
    if not isinstance(body, dict) or not isinstance(body.get("spec", {}), dict):
        way_out = 'Use an object with "name" and "spec".'
        raise Invalid([Problem("JSON", text[:200], "is not a query definition.", way_out)])
    refuse_characters(body)
    return body
