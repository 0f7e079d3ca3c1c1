"""Links between pages of the documentation lead to pages and headings that exist."""

import re
from pathlib import Path

import pytest

from queries.views.console.documentation import pages, read_page

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(REPOSITORY / name for name in ROOT_PAGES), *pages().values()]
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("document", PAGES, ids=lambda document: document.name)
def test_links_of_a_page_lead_somewhere(document: Path) -> None:
    text = re.sub(r"^ *(```|~~~).*?^ *\1|`[^`\n]+`", "", document.read_text(), flags=re.M | re.S)
    by_file = {file: name for name, file in pages().items()}
    dead = []
    for file, anchor in _LINK.findall(text):
        target = (document.parent / file).resolve() if file else document
        name = by_file.get(target)
        if not target.exists() or (anchor and name and anchor not in read_page(name).anchors):
            dead.append(f"{file}#{anchor}")
    assert dead == []
