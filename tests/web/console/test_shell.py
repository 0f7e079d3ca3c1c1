"""The shell of every page: it leads somewhere, keeps the theme, and needs no inline script."""

import re
from pathlib import Path

import pytest
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


MONITOR = ("Monitor", "Overview", "Queries", "Alerts", "Failures", "Runs", "Schedules")
BUILD = ("Build", "Applications", "Deploys", "Lineage", "Checkpoints", "Connectors")


def groups(html: str, menu: str) -> list[tuple[str, ...]]:
    """Return each group of the navigation (`nav`) or of the narrow menu: heading, entries."""
    start, end = {
        "nav": ('<nav aria-label="Main">', "</nav>"),
        "menu": ('<details class="menu menu-nav">', "</details>"),
    }[menu]
    part = html[html.index(start) :]
    pieces = part[: part.index(end)].split(f'<p class="nav-group" id="{menu}-')[1:]
    texts = [re.sub(r"<[^<>]*>", "\n", f"<{piece}").split("\n") for piece in pieces]
    return [
        tuple(text.strip() for text in lines if text.strip() and not text.isdigit())  # no counts
        for lines in texts
    ]


@pytest.mark.parametrize("menu", ["nav", "menu"])
@pytest.mark.parametrize("role", ["viewer", "operator", "author"])
def test_people_see_three_groups_without_what_only_admins_do(
    client: Client, request: pytest.FixtureRequest, role: str, menu: str
) -> None:
    client.force_login(request.getfixturevalue(role))
    settings_group = ("Settings", "Audit", "Tokens", "Teams", "System")
    assert groups(client.get("/").content.decode(), menu) == [MONITOR, BUILD, settings_group]


@pytest.mark.parametrize("menu", ["nav", "menu"])
def test_an_admin_sees_all_entries_in_three_groups(client: Client, admin: User, menu: str) -> None:
    client.force_login(admin)
    monitor, build, (heading, *entries) = groups(client.get("/").content.decode(), menu)
    assert (monitor, build, heading) == (MONITOR, BUILD, "Settings")
    assert entries[:5] == ["Audit", "Tokens", "Teams", "Users", "Secrets"]
    assert entries[-2:] == ["Git hosts", "System"]
    assert len(entries) == 9


def test_each_list_is_named_by_its_heading(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    html = client.get("/").content.decode()
    named = re.findall(r'aria-labelledby="((?:nav|menu)-[a-z]+)"', html)
    assert sorted(named) == sorted(
        f"{menu}-{name}" for menu in ("nav", "menu") for name in ("monitor", "build", "settings")
    )
    assert all(html.count(f'id="{name}"') == 1 for name in named)


def test_a_user_without_a_role_sees_no_heading(client: Client, db: None) -> None:
    client.force_login(User.objects.create_user("nobody"))
    html = client.get("/").content.decode()
    assert 'aria-label="Main"' in html
    assert "nav-group" not in html


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
