"""The console has the documentation of the installed version, and its pages link to it."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.template import Context, Template
from django.test import Client

from queries.domain.states import Phase, Verdict
from queries.views.console import documentation
from queries.views.console.documentation import FOLDER, INDEX, docs_address, pages, read_page

TEMPLATES = sorted(Path(settings.BASE_DIR, "templates").rglob("*.html"))
_LINK = re.compile(r'{% docs_link "([\w-]+)(?:#([\w-]+))?"([^%]*)%}')


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a page "trial", beside a page "other"."""
    monkeypatch.setattr(documentation, "FOLDER", tmp_path)
    (tmp_path / "other.md").write_text("# Other\n\n## A part\n")
    return tmp_path / "trial.md"


def html_of(trial: Path, text: str) -> str:
    trial.write_text(f"# Trial\n\n{text}\n")
    return str(read_page("trial").html)


# --- the pages --------------------------------------------------------------------------


def test_the_index_and_a_page_are_shown(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    index = client.get("/docs/")
    assert index.status_code == 200
    assert '<a href="/docs/' in index.content.decode()
    shown = client.get("/docs/definitions/").content.decode()
    assert "<h1>Definitions</h1>" in shown
    assert 'id="watermark"' in shown
    assert '<table class="dense">' in shown
    assert "&lt;!--" not in shown


@pytest.mark.parametrize("name", sorted(set(pages()) - {INDEX}))
def test_every_page_is_shown_with_its_title(name: str, client: Client, viewer: User) -> None:
    client.force_login(viewer)
    answer = client.get(docs_address(name))
    assert answer.status_code == 200
    assert len(re.findall(r"<h1>\s*\S+", answer.content.decode())) == 1


@pytest.mark.parametrize(
    "path",
    ["/docs/no-such-page/", "/docs/../README/", "/docs/decisions/", "/docs/images/no.png"]
    + ["/docs/images/..%2Fconcepts.md/", "/docs/concepts.md/", "/docs/%2Fetc%2Fpasswd/"],
)
def test_a_missing_page_is_not_found(path: str, client: Client, viewer: User) -> None:
    client.force_login(viewer)
    assert client.get(path).status_code == 404


def test_strangers_must_sign_in(client: Client) -> None:
    assert client.get("/docs/concepts/").status_code == 302


def test_images_are_shown(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    [name, *_] = sorted(file.name for file in (FOLDER / "images").glob("*.png"))
    answer = client.get(f"/docs/images/{name}")
    assert answer["Content-Type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG")


# --- what a page can contain ------------------------------------------------------------


def test_links_lead_to_pages_and_others_are_plain_text(trial: Path) -> None:
    html = html_of(
        trial,
        "[a](other.md) [b](other.md#a-part) [c](../README.md) [d](#x) [e](https://spark.apache.org/)"
        " ![f](images/query.png) [g](no.md)",
    )
    links = re.findall(r'<a href="([^"]+)"', html)
    assert links == ["/docs/other/", "/docs/other/#a-part", "#x", "https://spark.apache.org/"]
    assert " c " in html
    assert 'src="/docs/images/query.png"' in html


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "<!-- --><script>alert(1)</script><!-- -->",
        "[x](javascript:alert(1))",
        '<a id="x" onclick="alert(1)">y</a>',
        "<svg/onload=alert(1)>",
    ],
)
def test_html_and_scripts_are_shown_as_text(text: str, trial: Path) -> None:
    html = html_of(trial, text)
    assert not re.search(r"<(script|img|svg)|<[^>]*(onclick|onerror|javascript:)", html), html
    assert "alert(1)" in html


def test_comments_are_left_out_and_anchors_stay(trial: Path) -> None:
    html = html_of(trial, '<!-- reference: x -->\n| a |\n|---|\n| <a id="on_hold"></a>ON_HOLD |')
    assert "reference" not in html
    assert '<span id="on_hold"></span>ON_HOLD' in html
    assert "on_hold" in read_page("trial").anchors


def test_headings_have_the_anchors_that_github_gives_them(trial: Path) -> None:
    html_of(trial, "## `a_b`: Is it?\n\n## Part\n\n### Part\n")
    found = read_page("trial")
    assert found.title == "Trial"
    assert {"a_b-is-it", "part", "part-1"} <= found.anchors
    assert found.contents == (
        ("a_b-is-it", "a_b: Is it?", "h2"),
        ("part", "Part", "h2"),
        ("part-1", "Part", "h3"),
    )


# --- links from pages of the console ----------------------------------------------------


def targets() -> list[tuple[str, str, str]]:
    """Return page and anchor of each link in a template, with one for each state."""
    found = []
    for template in TEMPLATES:
        for name, anchor, more in _LINK.findall(template.read_text()):
            states = [*Phase, *Verdict] if " of=" in more else []
            found += [(template.name, name, one.lower()) for one in states] or [
                (template.name, name, anchor)
            ]
    return found


def test_every_link_of_a_template_is_counted() -> None:
    uses = sum(template.read_text().count("docs_link ") for template in TEMPLATES)
    assert uses == sum(len(_LINK.findall(template.read_text())) for template in TEMPLATES) > 6


@pytest.mark.parametrize(("template", "name", "anchor"), sorted(set(targets())))
def test_the_target_of_a_link_is_there(template: str, name: str, anchor: str) -> None:
    page = read_page(name)
    assert not anchor or anchor in page.anchors, template


def test_a_link_is_drawn_with_its_label_or_for_a_state() -> None:
    source = (
        '{% load docs_tags %}{% docs_link "concepts#lag" "Lag" %}|{% docs_link "x" of="ON_HOLD" %}'
    )
    label, icon = Template(source).render(Context()).split("|")
    assert label == '<a class="docs-link" href="/docs/concepts/#lag">Lag</a>'
    assert 'href="/docs/x/#on_hold" title="What on hold means"' in icon
