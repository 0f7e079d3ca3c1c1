"""The documentation of the installed version: its Markdown pages, as pages of the console.

The pages are ours and not written by users. Even so, HTML in them is shown as text, except
comments, which are left out, and the anchors of headings and table rows.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import join, normpath
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from headgate_server import places
from queries.roles import VIEW
from queries.views.console.shell import needs

FOLDER = places.DATA / "docs"
#: The name of the page that is shown at `/docs/`.
INDEX = "README"
_IMAGES = "images/"
_COMMENT = re.compile(r"\s*<!--(?:(?!-->).)*-->\s*", re.S)
_ANCHOR = re.compile(r'<a id="([a-z0-9_-]+)">')
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)
_CONTENTS = ("h2", "h3")


@dataclass(frozen=True, slots=True)
class DocsPage:
    """One page, rendered."""

    title: str
    html: SafeString
    anchors: frozenset[str]  # what a link can point to
    contents: tuple[tuple[str, str, str], ...]  # anchor, text and tag of each heading below


class _Renderer(RendererHTML):
    """Draws HTML within a page as text, and tables as those of the console."""

    def html_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Leave comments out, keep anchors, and escape everything else."""
        content = tokens[idx].content
        if _COMMENT.fullmatch(content):
            return ""
        if found := _ANCHOR.fullmatch(content):
            return f'<span id="{found[1]}"></span>'
        return "" if content == "</a>" else escape(content)

    html_inline = html_block

    def table_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Return the start of a table that scrolls within the page."""
        return '<div class="scroll"><table class="dense">\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Return the end of a table."""
        return "</table></div>\n"


def pages() -> dict[str, Path]:
    """Return the file of each page by its name: "alerts", "decisions/0009-…"."""
    return {
        file.relative_to(FOLDER).with_suffix("").as_posix(): file
        for file in sorted(FOLDER.rglob("*.md"))
    }


def docs_address(target: str) -> str:
    """Return the URL of "page" or "page#anchor"."""
    name, _, anchor = target.partition("#")
    address = reverse("docs") if name == INDEX else reverse("docs-page", args=[name])
    return f"{address}#{anchor}" if anchor else address


def read_page(name: str) -> DocsPage:
    """Return a page; raise `KeyError` if there is none of this name."""
    known = pages()
    parser = MarkdownIt("commonmark", {"html": True}, renderer_cls=_Renderer).enable("table")
    tokens = parser.parse(known[name].read_text(encoding="utf-8"))
    title, contents, anchors = _name_headings(tokens)
    for token in tokens:
        for child in token.children or ():
            if child.type == "html_inline":
                anchors.update(_ANCHOR.findall(child.content))
        _point_to_pages(token.children or (), name, known)
    html = str(parser.renderer.render(tokens, parser.options, {}))
    # All of it is escaped or ours (`_Renderer`), and markdown-it checks the schemes of links.
    return DocsPage(title, mark_safe(html), frozenset(anchors), tuple(contents))


def _name_headings(tokens: list[Token]) -> tuple[str, list[tuple[str, str, str]], set[str]]:
    """Give each heading its anchor, as GitHub does, and take the title out of the page."""
    title = ""
    contents: list[tuple[str, str, str]] = []
    anchors: set[str] = set()
    used: Counter[str] = Counter()
    for at, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        text = "".join(child.content for child in tokens[at + 1].children or ())
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        anchor = f"{slug}-{used[slug]}" if used[slug] else slug
        used[slug] += 1
        anchors.add(anchor)
        token.attrSet("id", anchor)
        if token.tag == "h1" and not title:
            title = text
            for part in tokens[at : at + 3]:
                part.hidden, part.children, part.content = True, [], ""
        elif token.tag in _CONTENTS:
            contents.append((anchor, text, token.tag))
    return title, contents, anchors


def _point_to_pages(inline: Sequence[Token], name: str, known: Mapping[str, Path]) -> None:
    """Turn links between the pages' files into links between pages; others become plain text."""
    dropped = False
    for token in inline:
        if token.type == "link_open":
            address = _address(str(token.attrGet("href") or ""), name, known)
            dropped = not address
            token.attrSet("href", address)
            if _ABSOLUTE.match(address):
                token.attrSet("rel", "noreferrer")
            token.hidden = dropped
        elif token.type == "link_close":
            token.hidden = dropped
        elif token.type == "image":
            token.attrSet("src", _address(str(token.attrGet("src") or ""), name, known))


def _address(href: str, name: str, known: Mapping[str, Path]) -> str:
    """Return the URL of a link's target; "" if the console does not have it."""
    if href.startswith("#") or _ABSOLUTE.match(href):
        return href
    file, _, anchor = href.partition("#")
    target = normpath(join(name, "..", file))
    if target.startswith(_IMAGES):
        return reverse("docs-image", args=[target.removeprefix(_IMAGES)])
    page = target.removesuffix(".md")
    if page == target or page not in known:
        return ""
    return docs_address(f"{page}#{anchor}" if anchor else page)


@needs(VIEW)
def docs_page(request: HttpRequest, name: str = INDEX) -> HttpResponse:
    """Show a page of the documentation; 404 if there is none of this name."""
    if name not in pages():
        raise Http404(f"there is no documentation page {name!r}")
    return render(request, "console/docs.html", {"page": read_page(name), "index": name == INDEX})


@needs(VIEW)
def docs_image(request: HttpRequest, name: str) -> HttpResponse:
    """Return an image of a page."""
    images = {file.name: file for file in (FOLDER / _IMAGES).glob("*.png")}
    if name not in images:
        raise Http404(f"there is no image {name!r}")
    return HttpResponse(images[name].read_bytes(), content_type="image/png")


urlpatterns = [
    path("docs/", docs_page, name="docs"),
    path("docs/images/<str:name>", docs_image, name="docs-image"),
    path("docs/<path:name>/", docs_page, name="docs-page"),
]
