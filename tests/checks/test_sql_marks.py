"""What runs on PostgreSQL too is complete: each function that builds SQL of its own is among it.

Services and listeners are tried there by all their tests. A function elsewhere (of a view, a
selector, a model) is either used by those, as their imports show, or named by the mark `sql` of a
test, which fails where it does not come through it (`tests/conftest_database.py`).
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from django.conf import settings

from headgate_ground.packages import SERVER
from tests.conftest_database import SQL_ROOMS

ROOT = Path(settings.BASE_DIR)
#: What of Django's makes a question that databases may answer differently.
EXPRESSIONS = {
    *("F", "Func", "Window", "Subquery", "OuterRef", "Exists", "Case", "RawSQL", "Cast"),
    *("Coalesce", "Collate", "Extract", "Trunc", "Now", "Greatest", "Least", "NullIf"),
    *("KeyTextTransform", "KT", "JSONObject", "StringAgg", "FilteredRelation"),
    *("Count", "Sum", "Max", "Min", "Avg"),
}
CALLS = {
    *("annotate", "alias", "aggregate", "distinct", "order_by", "union", "raw", "extra"),
    *("bulk_create", "bulk_update", "get_or_create", "update_or_create", "select_for_update"),
    "cursor",
}
LOOKUPS = {
    "contains",
    "contained_by",
    "icontains",
    "iexact",
    "has_key",
    "has_keys",
    "regex",
    "date",
}
#: Their tests run on PostgreSQL all of them; what is pure or in the driver asks no database.
TRIED = ("queries.services", "listeners")
WITHOUT = ("queries.domain", "queries.runtime", "listeners.spark")
#: Run whenever tables are made or emptied, on PostgreSQL as elsewhere.
WITH_THE_TABLES = {
    "queries.roles._make_groups",
    *(f"queries.models.access.audit.{name}" for name in ("guard", "unguard")),
    "queries.models.access.audit._after_migrations",
}


class Module:
    """A module's functions and classes, and what each of them names."""

    def __init__(self, file: Path) -> None:
        self.name = file.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        self.tree = ast.parse(file.read_text())
        self.imported = dict(self._imported())
        self.own = {part: node for node in self.tree.body for part in _names(node)}

    def _imported(self) -> Iterator[tuple[str, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    yield alias.asname or alias.name, f"{node.module}.{alias.name}"

    def named_by(self, node: ast.AST) -> Iterator[str]:
        """Yield what a node names of this module and of others."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                if part.id in self.own:
                    yield f"{self.name}.{part.id}"
                yield self.imported.get(part.id, "")
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                yield f"{self.imported.get(part.value.id, '')}.{part.attr}"

    def of_sql(self) -> Iterator[tuple[str, str]]:
        """Yield each function that builds SQL, and what it is in at the top of the module."""
        for top, node in self.own.items():
            for part in ast.walk(node):
                if isinstance(part, ast.FunctionDef) and any(map(self._asks, ast.walk(part))):
                    yield f"{self.name}.{part.name}", f"{self.name}.{top}"

    def _asks(self, node: ast.AST) -> bool:
        if isinstance(node, ast.keyword):
            return "__" in (node.arg or "") and str(node.arg).rpartition("__")[2] in LOOKUPS
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in CALLS
        of_django = self.imported.get(getattr(node.func, "id", ""), "").startswith("django.db")
        return of_django and getattr(node.func, "id", "") in EXPRESSIONS


def _names(node: ast.stmt) -> Iterator[str]:
    """Yield what a statement at the top of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    for target in getattr(node, "targets", [getattr(node, "target", None)]):
        if isinstance(target, ast.Name):
            yield target.id


@cache
def modules() -> list[Module]:
    """Return the modules of the server."""
    files = (file for name in SERVER for file in (ROOT / name).rglob("*.py"))
    found = [Module(file) for file in files if "migrations" not in file.parts]
    return [one for one in found if not one.name.startswith(WITHOUT)]


def tried_by_rooms() -> set[str]:
    """Return what services and listeners, and the tests of their rooms, use of other modules."""
    named: defaultdict[str, set[str]] = defaultdict(set)
    begin: set[str] = set()
    for module in modules():
        for top, node in module.own.items():
            named[f"{module.name}.{top}"] |= set(module.named_by(node))
        if module.name.startswith(TRIED):
            begin |= set(module.named_by(module.tree))
    for place in SQL_ROOMS:
        path = ROOT / "tests" / place
        for file in [path] if path.suffix else path.rglob("*.py"):
            module = Module(file)
            begin |= set(module.named_by(module.tree))
    found: set[str] = set()
    while begin:
        found |= begin
        begin = {other for one in begin for other in named[one]} - found
    return found


def marked() -> set[str]:
    """Return the functions that marks of tests name."""
    return {
        str(name.value)
        for file in (ROOT / "tests").rglob("test_*.py")
        if "mark.sql(" in (text := file.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.sql"
        for name in node.args
        if isinstance(name, ast.Constant)
    }


def test_each_function_with_sql_of_its_own_runs_on_postgresql_too() -> None:
    tried, named = tried_by_rooms(), marked() | WITH_THE_TABLES
    missing = [
        function
        for module in modules()
        if not module.name.startswith(TRIED)
        for function, top in module.of_sql()
        if function not in named and top not in tried
    ]
    assert missing == []


def test_a_mark_names_what_is_there() -> None:
    there = {f"{module.name}.{name}" for module in modules() for name in _functions(module)}
    assert marked() | WITH_THE_TABLES <= there
    assert len(marked()) > 80


def test_sql_is_recognized() -> None:
    """In places where it is known to be."""
    found = {function for module in modules() for function, _ in module.of_sql()}
    assert {
        "queries.selectors.metrics._figures",
        "queries.views.supervision.query_list._ordered",
        "queries.models.definitions.rank_field",
        "queries.selectors.supervision.observation._applications",
        "listeners.store._note_received",
    } <= found


def _functions(module: Module) -> Iterator[str]:
    return (node.name for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef))
