"""Masking takes time in proportion to a text's length, for each row of the table of secrets.

256 KiB of one row's own beginnings once took seconds, in a process that serves pages. Each pattern
searches texts that repeat the pieces of its row, on a budget of CPU time of which a linear search
needs a few per cent, and one that starts again at every repetition many times over.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from django.conf import settings

from controlplane.home import StartProblem
from headgate_ground import masking
from headgate_ground.secret_kinds import NAME, NAMES, VALUE, VALUES, SecretName, SecretValue
from tests import pieces
from tests.domain.failures.test_linear_texts import TooLong, budget

#: Characters: names are searched a hundred times as slowly as values, whose rows begin rarely.
OF_VALUES, OF_NAMES = 2 * 2**20, 64 * 2**10
BUDGET_S = 5.0  # of CPU time; `\beyJ`, which began again at each hyphen, took 15 s

rows = pytest.mark.parametrize("row", VALUES, ids=lambda one: one.example[:24])
names = pytest.mark.parametrize("row", NAMES, ids=lambda one: one.example)


def repeated(piece: str, size: int) -> str:
    return (piece * (size // len(piece) + 1))[:size]


def slow(search: Callable[[str], None], pieces: Iterable[str]) -> list[str]:
    """Return the first piece of which a search does not end within the budget, if any."""
    for piece in pieces:
        try:
            with budget(BUDGET_S):
                search(piece)
        except TooLong:
            return [piece]
    return []


def pieces_of_name(row: SecretName) -> list[str]:
    """Return pieces with a name: joined to itself, and before each separator and quote."""
    name = row.example.replace(".", "_")
    ends = ["", "-", "=", '="\\', " -> ", "=" + " " * 20]
    return [*(f"{name}{end}" for end in ends), *row.hostile]


@pytest.mark.guarantee("G-SECRET-6")
@rows
def test_a_row_of_values_is_searched_in_linear_time(row: SecretValue) -> None:
    pattern = re.compile(f"({row.before})({row.pattern})({row.after})")
    assert row.hostile

    def search(piece: str) -> None:
        text = repeated(piece, OF_VALUES)
        pattern.sub("", text)
        pattern.sub("", f"a{text}!")

    assert slow(search, row.hostile) == []


@names
def test_a_row_of_names_is_searched_in_linear_time(row: SecretName) -> None:
    def search(piece: str) -> None:
        text = repeated(piece, OF_NAMES)
        for pattern in (*masking._BY_NAME, masking._QUOTED, masking._SECRET_NAME):
            pattern.sub("", text)

    assert slow(search, pieces_of_name(row)) == []


def test_what_judges_a_value_takes_linear_time() -> None:
    def judge(piece: str) -> None:
        text = repeated(piece, OF_NAMES) + "!"
        masking._FILE_NAME.search(text)
        masking._PATH.fullmatch(text)
        masking._NO_SECRET.fullmatch(text)

    assert slow(judge, ["/", "/a", "a", "a.", "_file", "-File", ".A", "0", "A$"]) == []


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


JAVA = """
import java.nio.file.*;
import java.util.regex.*;
public class Searches {
    public static void main(String[] names) throws Exception {
        Pattern pattern = Pattern.compile(Files.readString(Path.of(names[0])));
        for (int at = 1; at < names.length; at++)
            pattern.matcher(Files.readString(Path.of(names[at]))).replaceAll("");
        System.out.println("all searched");
    }
}
"""


def test_sparks_jvm_searches_the_slowest_texts_without_a_full_stack(tmp_path: Path) -> None:
    """Java repeats some groups by calls: a long match of such a group ends in an error."""
    (tmp_path / "Searches.java").write_text(JAVA)
    texts = [piece for row in VALUES for piece in row.hostile]
    texts += ["-----BEGIN PRIVATE KEY-----\n" + "abc\n" * 65_536, "://x:" + "a" * 262_144]
    files = [tmp_path / "pattern", *(tmp_path / str(number) for number in range(len(texts)))]
    written = [f"(?i){NAME}|(?-i:{VALUE})", *(repeated(one, 256 * 2**10) for one in texts)]
    for file, text in zip(files, written, strict=True):
        file.write_text(text)
    try:
        home = pieces.java().home
    except StartProblem as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [home / "bin" / "java", tmp_path / "Searches.java", *files],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "Picked up JDK_JAVA_OPTIONS" not in line]
    assert (done.stdout, said) == ("all searched\n", [])
