"""Teams as an admin gives them and as a member meets them, in a real browser."""

import os
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from queries.models.access.accounts import Team
from queries.models.applications import Application
from queries.services.access.tokens import create_token
from tests.browser.conftest import Complaints, Open, too_wide
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.browser

PAGES = (
    "/settings/teams/",
    "/settings/teams/data/",
    "/settings/users/",
    "/settings/tokens/",
    "/applications/",
    "/applications/shops/",
    "/queries/?team=data",
    "/queries/delays/",
    "/new/application/",
    "/new/query/",
)


@pytest.fixture
def two_teams(stage: Stage, operator: User, author: User, admin: User) -> Stage:
    """Flights of team data, in which Otto and Aude are; shops of team web, in which nobody is."""
    for team, name, query in (("data", "flights", "delays"), ("web", "shops", "sales")):
        application = stage.application(name)
        application.team = Team.objects.create(name=team, created_at=stage.now)
        application.save()
        stage.query(query, name)
    stage.up("delays", "flights")
    Team.objects.get(name="data").members.add(operator, author)
    create_token(
        user=author,
        name="deploy",
        actor="ada",
        team="data",
        applications=["flights"],
        now=timezone.now(),
    )
    create_token(user=operator, name="nightly", actor="ada", scope="read", now=timezone.now())
    return stage


def _shot(page: Page, name: str) -> None:
    """Keep a picture where somebody wants to look at it."""
    if folder := os.environ.get("SHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_page_of_teams_breaks_the_policy_or_bars_anybody(
    look: Open, two_teams: Stage, admin: User, axe: str, complaints: Complaints, dark: bool
) -> None:
    page = look(admin, "/", dark=dark)
    faults: list[str] = []
    for address in PAGES:
        page.goto(address)
        expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
        page.evaluate(axe)
        found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        faults += [f"{address} {fault['id']}" for fault in found["violations"]]
        _shot(page, f"{address.strip('/').replace('/', '-').split('?')[0]}-{dark}")
    assert not faults, "\n".join(faults)
    assert complaints.said == []


def test_pages_of_teams_scroll_only_downwards(look: Open, two_teams: Stage, admin: User) -> None:
    assert too_wide(look(admin, "/"), PAGES) == []
    assert too_wide(look(admin, "/", narrow=True), PAGES) == []


def test_an_admin_makes_a_team_and_its_member_acts_on_its_application_alone(
    look: Open, two_teams: Stage, admin: User, operator: User
) -> None:
    page = look(admin, "/settings/teams/")
    page.get_by_label("Name").fill("night")
    page.get_by_role("button", name="Create team").click()
    page.get_by_label("otto").check()
    page.get_by_role("button", name="Save members").click()
    expect(page.get_by_text("The members of night were saved.")).to_be_visible()
    page.goto("/applications/shops/")
    page.get_by_label("Team of shops").select_option("night")
    page.get_by_role("button", name="Set team").click()
    expect(page.get_by_text("shops belongs to team night.")).to_be_visible()
    theirs = look(operator, "/queries/sales/")
    expect(theirs.get_by_role("button", name="Start")).to_be_visible()
    application = Application.objects.get(name="shops")
    application.team = Team.objects.get(name="web")
    application.save()
    theirs.get_by_role("button", name="Start").click()  # from a page that is not new any more
    said = "Application shops belongs to team web, and you are not a member."
    refused = theirs.locator("p.note, h2", has_text=said)
    expect(refused).to_be_visible()
    _shot(theirs, "refused")
    theirs.reload()
    expect(theirs.get_by_role("button", name="Start")).to_have_count(0)
    theirs.goto("/queries/sales/stop/")
    expect(refused).to_be_visible()
    _shot(theirs, "refused-page")


def test_an_author_of_sql_is_offered_sql_and_told_why(
    look: Open, two_teams: Stage, author: User
) -> None:
    author.grant.delete()
    page = look(author, "/new/query/")
    expect(
        page.get_by_text("You don't have permission to write Python; an admin can grant it.")
    ).to_be_visible()
    expect(page.get_by_label("Python", exact=True)).to_have_count(0)
    expect(page.get_by_label("SQL", exact=True).first).to_be_checked()
    _shot(page, "sql-only")
    page.goto("/applications/flights/edit/")
    expect(page.get_by_label("Code folders (python_path)")).to_have_attribute(
        "readonly", "readonly"
    )
    _shot(page, "sql-only-application")
