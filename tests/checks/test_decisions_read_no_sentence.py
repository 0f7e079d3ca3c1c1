"""Codes decide: nothing compares or searches a text that is shown to people."""

import ast
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
#: Attributes that hold such texts.
TEXTS = frozenset({"advice", "detail", "error", "meaning", "message", "problem", "risk"})
TEXTS |= {"sentence", "title", "warning", "way_out", "why"}
#: Lines that may: they compare a text with the last one, to write or log it only once, or they
#: read the text of another program, which has no code.
EXEMPT = {
    ("queries/services/alerts/incidents.py", "row.detail"),  # written once
    ("queries/services/checkpoints/remote.py", "before.problem"),  # written once
    ("queries/services/procedures/engine.py", "operation.detail"),  # written once
    ("queries/tasks.py", "str(error)"),  # logged once
    ("queries/runtime/run.py", "run_error.message"),  # Spark's
    ("listeners/ingest.py", "str(error)"),  # Redis's
}


def read_texts(tree: ast.Module) -> set[str]:
    """Return the texts that a module searches, or compares with anything but "" and None."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found += [node.func.value] if node.func.attr in ("startswith", "endswith") else []
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if isinstance(node.ops[0], ast.In | ast.NotIn):
                found.append(node.comparators[0])
            elif isinstance(node.ops[0], ast.Eq | ast.NotEq) and not any(map(is_empty, sides)):
                found += sides
    return {ast.unparse(one) for one in found if is_text(one)}


def is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in TEXTS
    return ast.unparse(node) == "str(error)"


def is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("", None)


def test_no_decision_reads_a_sentence() -> None:
    found = {
        (str(path.relative_to(REPOSITORY)), text)
        for room in ("queries", "listeners", "controlplane", "installation")
        for path in (REPOSITORY / room).rglob("*.py")
        for text in read_texts(ast.parse(path.read_text()))
    }
    assert found == EXEMPT


def test_such_a_decision_is_found() -> None:
    assert read_texts(ast.parse('one.message.startswith("needs the")')) == {"one.message"}
    assert read_texts(ast.parse('"too large" in str(error)')) == {"str(error)"}
    assert read_texts(ast.parse("found.sentence == query.risk")) == {
        "found.sentence",
        "query.risk",
    }
    assert read_texts(ast.parse('one.message != ""')) == set()
