"""The shell of every page: it leads somewhere, keeps the theme, and needs no inline script."""

import re
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.states import Phase
from queries.templatetags.shell_tags import coded
from tests.scenarios.stage import Stage

TEMPLATES = sorted(Path(settings.BASE_DIR, "templates").rglob("*.html"))


def links(html: str) -> list[str]:
    """Return the addresses of the left navigation."""
    side = html[html.index('<aside class="side">') : html.index("</aside>")]
    return re.findall(r'<a [^>]*href="([^"]+)"', side)


def test_every_entry_of_the_navigation_leads_somewhere(client: Client, admin: User) -> None:
    client.force_login(admin)
    html = client.get("/").content.decode()
    assert len(links(html)) > 5
    for address in links(html):
        assert client.get(address, follow=True).status_code == 200, address


def test_the_navigation_leads_to_the_system(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    assert "/settings/system/" in links(client.get("/").content.decode())


def test_only_an_admin_is_led_to_the_users(client: Client, viewer: User, admin: User) -> None:
    client.force_login(admin)
    users = [address for address in links(client.get("/").content.decode()) if "users" in address]
    client.force_login(viewer)
    assert users
    assert not set(users) & set(links(client.get("/").content.decode()))


def test_the_page_one_is_on_is_marked(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    assert re.search(
        r'href="/queries/" aria-current="page"', client.get("/queries/").content.decode()
    )


def test_a_theme_is_kept_and_drawn_by_the_server(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    assert "data-bs-theme" not in client.get("/").content.decode().partition(">\n<head>")[0]
    answer = client.post("/theme/", {"theme": "dark", "next": "/queries/"})
    assert answer["Location"] == "/queries/"
    assert '<html lang="en" data-bs-theme="dark"' in client.get("/").content.decode()
    client.post("/theme/", {"theme": "purple<script>"})
    assert "purple" not in client.get("/").content.decode()


def test_a_page_that_is_not_there_offers_a_way_on(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    answer = client.get("/no/such/page/")
    assert answer.status_code == 404
    assert "Page not found" in answer.content.decode()


FORBIDDEN = {
    "an inline style": r"\sstyle\s*=",
    "an inline handler": r"\son[a-z]+\s*=\s*[\"']",
    "code in an attribute": r"hx-on|hx-vals='js:|javascript:",
    "an inline script": r"<script(?![^>]*\ssrc=)[^>]*>\s*[^<\s]",
    "another site": r"(?:src|href)=[\"']https?://(?!127\.0\.0\.1)",
}


def test_no_template_has_what_the_policy_forbids() -> None:
    texts = {
        str(path): re.sub(
            r"{% comment %}.*?{% endcomment %}", "", path.read_text(), flags=re.DOTALL
        )
        for path in TEMPLATES
    }
    assert len(texts) > 100
    found = [
        (path, what)
        for path, text in texts.items()
        for what, pattern in FORBIDDEN.items()
        if re.search(pattern, text)
    ]
    assert found == []


def test_the_overview_counts_what_there_is(client: Client, viewer: User, stage: Stage) -> None:
    client.force_login(viewer)
    assert "No queries yet" in client.get("/").content.decode()
    stage.now = timezone.now()
    for name in ("delays", "hours"):
        stage.query(name)
    stage.up("delays")
    html = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", client.get("/").content.decode()))
    assert "1 of 2 queries running" in html
    assert "All clear." in html
    assert stage.phase("delays") == Phase.RUNNING
    assert "olga started delays" in html


def test_an_address_that_only_takes_forms_says_so_to_a_visitor(
    client: Client, stage: Stage, admin: User
) -> None:
    client.force_login(admin)
    stage.query("delays")
    answer = client.get("/queries/delays/preflight/")
    assert answer.status_code == 405
    assert answer["Allow"] == "POST"
    assert "it only accepts form submissions" in answer.content.decode()
    sent = client.post("/queries/delays/runs/")  # a page, which no form sends to
    assert (sent.status_code, sent["Allow"]) == (405, "GET")
    assert sent.content == b""


def test_commands_in_a_sentence_are_code() -> None:
    assert coded("Run `make <x>` here, or `b`.") == (
        "Run <code>make &lt;x&gt;</code> here, or <code>b</code>."
    )
    assert coded("a ` b & c") == "a ` b &amp; c"
