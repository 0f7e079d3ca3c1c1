"""What pages, REST and metrics show of queries, failures, logs and lineage passes one door."""

import ast
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DOOR = "queries.selectors.visible"
MODELS = frozenset({"Application", "Query", "Driver", "Run", "Failure", "FailureGroup"})
SHOWS = ("views", "api", "templatetags")
DECIDES = ("services", "management", "tasks.py", "ticks.py")
#: They look whether a PUT creates or changes, which is a decision.
WRITES = {"queries.api.supervision.applications", "queries.api.supervision.queries"}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def modules() -> dict[str, Path]:
    paths = sorted((REPOSITORY / "queries").rglob("*.py"))
    return {".".join(path.relative_to(REPOSITORY).with_suffix("").parts): path for path in paths}


def imported_by(*rooms: str) -> set[str]:
    found = set()
    for path in modules().values():
        if path.relative_to(REPOSITORY / "queries").parts[0] in rooms:
            for node in ast.walk(parsed(path)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found


def reads_past(tree: ast.Module) -> list[str]:
    return [
        f"{node.value.id}.objects"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "objects"
        and isinstance(node.value, ast.Name)
        and node.value.id in MODELS
    ]


def readers() -> dict[str, Path]:
    """Return pages, REST, and the selectors that only they use: others decide as well."""
    only_shown = imported_by(*SHOWS) - imported_by(*DECIDES)
    found = {name: path for name, path in modules().items() if name not in WRITES | {DOOR}}
    return {
        name: path
        for name, path in found.items()
        if name.split(".")[1] in SHOWS
        or (
            name.startswith("queries.selectors.")
            and name in only_shown
            and not name.startswith("queries.selectors.access.")  # the check of rights
        )
    }


def test_what_is_shown_is_read_through_the_door() -> None:
    past = {name: reads_past(parsed(path)) for name, path in readers().items()}
    assert {name: reads for name, reads in past.items() if reads} == {}, f"Use {DOOR} instead."


def test_the_door_is_used_and_a_read_past_it_is_found() -> None:
    assert "queries.selectors.supervision.query_filters" in readers()
    assert "queries.selectors.supervision.observation" not in readers()
    assert DOOR in imported_by("selectors", "views")
    assert reads_past(ast.parse("rows = Query.objects.filter(pk=1)")) == ["Query.objects"]
