"""Names of files and functions in the documentation are names that the code has.

Decisions keep the functions and fields of their day; the files in them exist.
"""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
DECISIONS = sorted((REPOSITORY / "docs" / "decisions").glob("*.md"))
#: Names of others: an example of Spark's, a file of ssh, an attribute of Linux processes.
OTHERS = frozenset({"structured_sessionization.py", "known_hosts", "no_new_privs"})


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return tuple(listed.stdout.split())


@cache
def words() -> frozenset[str]:
    """Return every identifier of the code, of templates and of configuration."""
    found = {Path(name).stem for name in tracked()}
    for name in tracked():
        if not name.endswith(".md") and (REPOSITORY / name).is_file():
            text = (REPOSITORY / name).read_bytes().decode(errors="ignore")
            found.update(re.findall(r"\w+", text))
    return frozenset(found)


def code_of(page: Path) -> list[str]:
    """Return what a page writes as code within its sentences, without its code blocks."""
    text = re.sub(r"^ *(```|~~~).*?^ *\1", "", page.read_text(), flags=re.M | re.S)
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("page", [*PAGES, *DECISIONS], ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    named = {one for one in code_of(page) if re.fullmatch(r"[\w./-]+\.(py|html|js|toml|xml)", one)}
    missing = [
        one
        for one in sorted(named - OTHERS)
        if not any(name == one or name.endswith(f"/{one}") for name in tracked())
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_functions_and_fields_that_a_page_names_are_there(page: Path) -> None:
    named = {
        part
        for one in code_of(page)
        if re.fullmatch(r"[\w.]+(\(\))?", one)
        for part in re.split(r"[.()]", one)
        if re.fullmatch(r"_?[a-z]+(_[a-z]+)+", part)
    }
    # tests/web/metrics compares the names of metrics, which code puts together.
    named = {one for one in named if not one.startswith("headgate_")}
    assert sorted(named - words() - OTHERS) == []
