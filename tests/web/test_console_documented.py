"""docs/console.md names twenty pains and twenty habits, each with a test that is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "console.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_there_are_twenty_of_each() -> None:
    for part in ("Twenty pains", "Twenty habits"):
        section = PAGE.split(f"## {part}")[1].split("\n## ")[0]
        assert len(re.findall(r"^\| .* \| `tests/", section, re.MULTILINE)) == 20


def test_each_is_shown_by_a_test_that_is_there() -> None:
    assert len(NAMED) >= 40
    missing = [
        (file, name)
        for file, name in NAMED
        if not re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert missing == []
