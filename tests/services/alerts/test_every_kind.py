"""Every kind of incident is made to happen by a test that asserts it; a new one fails here."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from queries.domain.alerts.kinds import IncidentKind

TESTS = Path(__file__).parents[2]
#: Where incidents come of rows, drivers and processes; tests of pure functions do not count.
ROOMS = ("services", "scenarios", "browser")


@cache
def _asserted() -> str:
    """Return what tests assert there, and the cases that they assert it for."""
    found = []
    for room in ROOMS:
        for path in (TESTS / room).rglob("test_*.py"):
            if path == Path(__file__):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Assert):
                    found.append(ast.unparse(node))
                elif isinstance(node, ast.FunctionDef):
                    found += [ast.unparse(one) for one in node.decorator_list]
    return "\n".join(found)


@pytest.mark.parametrize("kind", IncidentKind)
def test_a_test_makes_it_happen(kind: IncidentKind) -> None:
    named = re.search(rf"\bIncidentKind\.{kind.name}\b|'{kind.value}'", _asserted())
    assert named, f"no test asserts an incident of the kind {kind.value}"
