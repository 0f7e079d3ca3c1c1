"""Pages of docs/ can be found: the index lists each of them, and each decision has its number."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DECISIONS = sorted((REPOSITORY / "docs" / "decisions").glob("*.md"))


def test_the_index_lists_every_page() -> None:
    docs = REPOSITORY / "docs"
    linked = set(re.findall(r"\]\(([\w.-]+\.md)(?:#[\w-]+)?\)", (docs / "README.md").read_text()))
    pages = {page.name for page in docs.glob("*.md")} - {"README.md"}
    assert len(pages) > 20
    assert pages - linked == set()


def test_no_two_decisions_share_a_number() -> None:
    numbers = [page.name.partition("-")[0] for page in DECISIONS]
    assert numbers == [f"{number:04}" for number in range(1, len(DECISIONS) + 1)]


def test_a_decision_is_headed_by_its_number_and_a_sentence() -> None:
    wrong = [
        page.name
        for page in DECISIONS
        if not re.match(rf"# {page.name[:4]}: [A-Z]\S* .*[^.]\n", page.read_text())
    ]
    assert wrong == []


def test_a_decision_has_a_status_and_its_date() -> None:
    status = re.compile(
        r"Status: (accepted|superseded by \[\d{4}\]\([\w.-]+\)), 2\d{3}-\d\d-\d\d(;|$)"
    )
    wrong = [page.name for page in DECISIONS if not status.match(page.read_text().split("\n")[2])]
    assert wrong == []
