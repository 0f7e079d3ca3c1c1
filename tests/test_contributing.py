"""CONTRIBUTING.md names commands, marks and files that are there."""

import re
import subprocess
from pathlib import Path

import pytest
from django.conf import settings

REPOSITORY = Path(settings.BASE_DIR)
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text()
RUN = re.findall(r"<!-- run -->\n *```sh\n *(.*?)\n *```", PAGE, re.DOTALL)
COMMANDS = sorted({*RUN, *re.findall(r"`(make [^`]+)`", PAGE)} - {"make bench NAME"})


def test_the_page_has_commands_to_run() -> None:
    assert len(RUN) == 2
    assert len(COMMANDS) > 8


@pytest.mark.parametrize("command", COMMANDS)
def test_make_knows_each_command(command: str) -> None:
    told = subprocess.run(
        ["bash", "-c", command.replace("make ", "make -n ", 1)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "bootstrap/run.py" in told.stdout


def test_the_first_change_is_seen_to_fail_by_the_command_that_the_page_gives() -> None:
    folder, words = re.findall(r'ARGS="(\S+) -q -k (\w+)"', PAGE)[0]
    sources = [file.read_text() for file in (REPOSITORY / folder).rglob("test_*.py")]
    assert any(f"def test_{words}" in text for text in sources)
    known = (REPOSITORY / "queries").rglob("*rules.py")
    assert not any("INVALID_BUCKET_FILE" in file.read_text() for file in known)


def test_every_mark_that_it_names_is_there(request: pytest.FixtureRequest) -> None:
    marks = {line.partition(":")[0] for line in request.config.getini("markers")}
    named = re.findall(r"by mark: ((?:`\w+`,? ?)+)", PAGE)[0]
    assert set(re.findall(r"\w+", named)) <= marks


def test_every_path_that_it_names_is_there() -> None:
    roots = [REPOSITORY / folder for folder in ("", "tests", "queries", "queries/domain")]
    paths = set(re.findall(r"`(\w[\w./]*/[\w./]*)`", PAGE))
    assert len(paths) > 10
    missing = [path for path in paths if not any((root / path).exists() for root in roots)]
    assert missing == []
