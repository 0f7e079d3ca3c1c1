"""Nothing that pages, code and templates link is dead: files, headings, images, static files."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
#: A page named in code, in a template or in a sentence, such as docs/alerts.md#channels.
NAMED = re.compile(r"(?<![\w/.-])(docs/[\w/-]+\.md)(?:#([\w-]+))?")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
IMAGE = re.compile(r"<(?:img|source)[^>]* (?:src|srcset)=\"(?!https?:)([^\"]+)\"")
STATIC = re.compile(r"{%\s*static\s+[\"']([^\"']+)[\"']")
#: Tests that make up pages of their own.
MADE_UP = frozenset(
    f"tests/{name}.py"
    for name in ("checks/test_areas", "checks/test_prose", "documentation/test_dead_links")
)


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return tuple(name for name in listed.stdout.split("\n") if (REPOSITORY / name).is_file())


PAGES = [name for name in tracked() if name.endswith(".md")]


def prose(text: str) -> str:
    """Return a page without its code, which may have brackets of its own."""
    text = re.sub(r"^ *(```|~~~).*?^ *\1", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]+`", lambda code: re.sub(r"[\[\]]", "", code[0]), text)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub makes them, and its own `<a id>`."""
    text = re.sub(r"^ *(```|~~~).*?^ *\1", "", page.read_text(), flags=re.M | re.S)
    slugs: list[str] = []
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)  # a link's text only
        slug = re.sub(r"[^\w\s-]", "", words.lower()).replace(" ", "-")
        slugs.append(f"{slug}-{slugs.count(slug)}" if slug in slugs else slug)
    return frozenset(slugs) | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def dead_links(page: Path) -> list[str]:
    """Return the links of a page whose file or heading does not exist."""
    dead = []
    text = prose(page.read_text())
    for target, anchor in LINK.findall(text) + [(image, "") for image in IMAGE.findall(text)]:
        file = page if not target else (page.parent / target).resolve()
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            dead.append(f"{target}#{anchor}" if anchor else target)
    return dead


@pytest.mark.parametrize("name", PAGES)
def test_no_link_of_a_page_is_dead(name: str) -> None:
    assert dead_links(REPOSITORY / name) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# The `make run` of [one](x.md)\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        '<a id="own"></a>\n[a](other.md) [b](other.md#twice-1) [c](#own) `[x](code.md)`\n'
        "[d](other.md#the-make-run-of-one) [e](https://example.org/x#y)\n"
        "```\n[f](block.md)\n```\n[g](gone.md) [h](other.md#thrice)\n![i](gone.png) [j](#gone)\n"
        '<source media="(prefers-color-scheme: dark)" srcset="gone-dark.png">\n'
    )
    dead = ["gone.md", "other.md#thrice", "gone.png", "#gone", "gone-dark.png"]
    assert dead_links(page) == dead


def test_every_page_that_code_and_templates_name_exists() -> None:
    read, dead = 0, []
    for name in tracked():
        if name.endswith((".md", ".png", ".jar")) or name.startswith("static/vendor/"):
            continue
        if name in MADE_UP:
            continue
        for page, anchor in NAMED.findall((REPOSITORY / name).read_bytes().decode(errors="ignore")):
            read += 1
            file = REPOSITORY / page
            if not file.is_file() or (anchor and anchor not in anchors(file)):
                dead.append(f"{name}: {page}#{anchor}")
    assert read > 20
    assert dead == []


def test_every_static_file_of_a_template_exists() -> None:
    named = {
        (file, name)
        for file in tracked()
        if file.startswith("templates/")
        for name in STATIC.findall((REPOSITORY / file).read_text())
    }
    assert len(named) > 5
    assert {
        (file, name) for file, name in named if not (REPOSITORY / "static" / name).exists()
    } == set()


def test_every_image_is_shown_somewhere() -> None:
    images = {Path(name).name for name in tracked() if name.startswith("docs/images/")}
    pages = "".join((REPOSITORY / page).read_text() for page in PAGES)
    assert images
    assert {name for name in images if name not in pages} == set()
