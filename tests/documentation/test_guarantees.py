"""Every guarantee of the pages is carried by a test, and every guard holds one of them.

Tests carry a guarantee's id by `@pytest.mark.guarantee("G-FENCE-1")`; the marks are read without
importing the tests.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = ("guarantees.md", "security.md")
ID = r"`(G-[A-Z]+-\d+)`"
GUARDS = "## Guards"


def _page(name: str) -> str:
    return (REPOSITORY / "docs" / name).read_text()


def _section(page: str, heading: str) -> str:
    return page.partition(f"\n{heading}\n")[2].partition("\n## ")[0]


def _rows_of_guards() -> dict[str, list[str]]:
    """Return the guards of each guarantee, by the table of the page."""
    rows = re.findall(rf"^\| {ID} \| (.+) \|$", _section(_page(PAGES[0]), GUARDS), re.M)
    return {guarantee: re.findall(r"`([\w-]+)`", guards) for guarantee, guards in rows}


def _guaranteed() -> list[str]:
    """Return the ids that the pages define: in a table's first column, or behind a sentence."""
    first, second = map(_page, PAGES)
    first = first.replace(_section(first, GUARDS), "")
    in_tables = re.findall(rf"^\| {ID} \| ", f"{first}\n{second}", re.M)
    return in_tables + re.findall(rf"\({ID}\)", second)


def _marks(file: Path) -> Iterator[tuple[str, str]]:
    """Return each test of a file with the ids of its marks."""
    text = file.read_text()
    if "mark.guarantee(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.guarantee":
                yield from ((node.name, ast.literal_eval(one)) for one in mark.args)


def _carried() -> dict[str, set[str]]:
    """Return the tests of each id."""
    carried: dict[str, set[str]] = {}
    for file in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        for test, guarantee in _marks(file):
            carried.setdefault(guarantee, set()).add(test)
    return carried


def test_each_guarantee_is_defined_once() -> None:
    guaranteed = _guaranteed()
    assert len(guaranteed) > 100
    assert sorted(guaranteed) == sorted(set(guaranteed))


def test_each_guarantee_is_carried_by_a_test_and_no_test_carries_another() -> None:
    carried, guaranteed = _carried(), set(_guaranteed())
    assert guaranteed - carried.keys() == set(), "of no test"
    assert carried.keys() - guaranteed == set(), "on no page"
    assert [name for names in carried.values() for name in names if name[:5] != "test_"] == []


def test_each_guard_holds_one_guarantee_and_one_of_its_tests_carries_it() -> None:
    guards = tomllib.loads((REPOSITORY / "bootstrap" / "guards.toml").read_text())["guard"]
    rows, carried = _rows_of_guards(), _carried()
    assert sorted(one for row in rows.values() for one in row) == sorted(g["name"] for g in guards)
    assert rows.keys() - set(_guaranteed()) == set()
    tests = {
        g["name"]: {t.partition("[")[0].rpartition("::")[2] for t in g["tests"]} for g in guards
    }
    held = {guarantee: set().union(*(tests[one] for one in row)) for guarantee, row in rows.items()}
    assert [one for one in held if carried.get(one, set()).isdisjoint(held[one])] == []
