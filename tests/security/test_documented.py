"""docs/security.md says what is defended, each with a test that is there, or that it is not."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
TABLE = re.findall(r"^\| (\S[^|]*) \| [^|]+ \| ([^|]+) \|$", PAGE.split("\n## ")[1], re.MULTILINE)
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)


def test_twenty_five_things_are_judged() -> None:
    things = {name for name, _ in TABLE}
    assert len(things) == len(TABLE) == 25
    assert [name for name, held in TABLE if "tests/" not in held] == []


def test_each_sentence_has_a_test_that_is_there() -> None:
    assert len(set(NAMED)) > 50
    texts = {file: (ROOT / file).read_text() for file, _ in NAMED}
    missing = [
        (file, name)
        for file, name in sorted(set(NAMED))
        if name and not re.search(rf"^(?:async )?def {name}\(", texts[file], re.MULTILINE)
    ]
    assert missing == []
