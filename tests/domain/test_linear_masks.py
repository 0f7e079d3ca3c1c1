"""Masking takes time in proportion to a text's length, for each row of the table of secrets.

256 KiB of one row's own beginnings once took seconds, in a process that serves pages. Each pattern
searches texts that repeat the pieces of its row, on a budget of CPU time of which a linear search
needs a few per cent, and one that starts again at every repetition many times over.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from django.conf import settings

from headgate_ground import masking
from headgate_ground.secret_kinds import NAME, NAMES, VALUES, SecretName, SecretValue
from tests.domain.failures.test_linear_texts import budget

#: Characters: names are searched a hundred times as slowly as values, whose rows begin rarely.
OF_VALUES, OF_NAMES = 2 * 2**20, 64 * 2**10
BUDGET_S = 5.0  # of CPU time; `\beyJ`, which began again at each hyphen, took 15 s

rows = pytest.mark.parametrize("row", VALUES, ids=lambda one: one.example[:24])
names = pytest.mark.parametrize("row", NAMES, ids=lambda one: one.example)


def repeated(piece: str, size: int) -> str:
    return (piece * (size // len(piece) + 1))[:size]


def pieces_of_name(row: SecretName) -> list[str]:
    """Return pieces with a name: joined to itself, and before each separator and quote."""
    name = row.example.replace(".", "_")
    ends = ["", "-", "=", '="\\', " -> ", "=" + " " * 20]
    return [*(f"{name}{end}" for end in ends), *row.hostile]


@rows
def test_a_row_of_values_is_searched_in_linear_time(row: SecretValue) -> None:
    pattern = re.compile(f"({row.before})({row.pattern})({row.after})")
    assert row.hostile
    for piece in row.hostile:
        text = repeated(piece, OF_VALUES)
        with budget(BUDGET_S):
            pattern.sub("", text)
            pattern.sub("", f"a{text}!")


@names
def test_a_row_of_names_is_searched_in_linear_time(row: SecretName) -> None:
    for piece in pieces_of_name(row):
        text = repeated(piece, OF_NAMES)
        with budget(BUDGET_S):
            for pattern in (*masking._BY_NAME, masking._QUOTED, masking._SECRET_NAME):
                pattern.sub("", text)


def test_what_judges_a_value_takes_linear_time() -> None:
    for piece in ("/", "/a", "a", "a.", "_file", "-File", ".A", "0", "A$"):
        text = repeated(piece, OF_NAMES) + "!"
        with budget(BUDGET_S):
            masking._FILE_NAME.search(text)
            masking._PATH.fullmatch(text)
            masking._NO_SECRET.fullmatch(text)


def test_the_browser_removes_secrets_from_a_draft_in_linear_time() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    script = Path(settings.BASE_DIR, "static/js/drafts.js").read_text()
    line = next(one for one in script.splitlines() if "const secret =" in one)
    code = (
        "const form = {dataset: {secretNames: process.argv[1]}};"
        f"{line}"
        "for (const piece of ['token', 'token ', 'token=', 'passw-', '-sas', 'token= '])"
        "  piece.repeat(2 ** 21 / piece.length).replace(secret, '$1');"
        "console.log('password: hunter2'.replace(secret, '$1'));"
    )
    found = subprocess.run(  # 0.5 s; without a limit on what follows a name, an hour
        [node, "-e", code, NAME], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout == "password: \n"
