"""Operators and authors act on the applications of their teams; admins give teams."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import DjangoAssertNumQueries

from queries.models.access.accounts import AccessToken, Grant, Team
from queries.models.alerts import Incident, Maintenance
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.history import FailureGroup, Operation, Transition
from queries.services.access.tokens import create_token
from queries.services.system.health import forget
from tests.scenarios.stage import Stage
from tests.services.bulk import advance_many
from tests.web.browserless import Page

JSON = "application/json"
SQL: dict[str, Any] = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate"}],
    "sql": "SELECT * FROM ticks",
    "sink": {"format": "noop"},
}


@pytest.fixture
def two_teams(stage: Stage) -> Stage:
    """Flights of team data, shops of team web, and trial, which is everybody's."""
    for team, name, query in (("data", "flights", "delays"), ("web", "shops", "sales")):
        application = stage.application(name)
        application.team = Team.objects.create(name=team, created_at=stage.now)
        application.save()
        stage.query(query, name)
    stage.query("trial")
    return stage


def _member(name: str, role: str, *teams: str) -> User:
    user = User.objects.create_user(name)
    user.groups.add(Group.objects.get(name=role))
    for team in teams:
        Team.objects.get(name=team).members.add(user)
    return user


@pytest.fixture
def dora(two_teams: Stage) -> User:
    """Dora, an operator of team data."""
    return _member("dora", "operator", "data")


@pytest.fixture
def anton(two_teams: Stage) -> User:
    """Anton, an author of team data."""
    return _member("anton", "author", "data")


@pytest.mark.guarantee("G-TEAM-1", "G-TEAM-2")
def test_a_refusal_names_the_team_and_who_can_help(client: Client, dora: User, admin: User) -> None:
    _member("wanda", "operator", "web")
    client.force_login(dora)
    answer = client.post("/api/v1/queries/sales/stop/", "{}", content_type=JSON)
    assert answer.status_code == 403
    problem = answer.json()
    assert problem["type"] == "urn:headgate:problem:forbidden"
    assert problem["detail"] == "Application shops belongs to team web, and you are not a member."
    assert problem["way_out"] == (
        "Ask a member of web (wanda) to do it, or an admin (ada) to add you to the team."
    )
    page = Page(client, "/queries/sales/stop/")
    assert page.status == 403
    assert problem["detail"] in page.text
    assert problem["way_out"] in page.text
    asked = client.post("/queries/sales/stop/", headers={"Accept": JSON})
    assert asked.status_code == 403
    assert problem["detail"] in asked.json()["text"]
    assert not Operation.objects.exists()


@pytest.mark.guarantee("G-TEAM-2")
def test_buttons_are_shown_where_they_work(client: Client, anton: User) -> None:
    client.force_login(anton)
    for query, works in (("delays", True), ("trial", True), ("sales", False)):
        html = Page(client, f"/queries/{query}/").html
        assert ("act-start" in html) is works
        assert (f'href="/queries/{query}/edit/"' in html) is works
    assert "/applications/shops/restart/" not in Page(client, "/applications/shops/").html
    assert "/applications/flights/restart/" in Page(client, "/applications/flights/").html


def test_a_row_of_a_list_has_buttons_where_they_work(client: Client, dora: User) -> None:
    client.force_login(dora)
    page = Page(client, "/queries/")
    for query, works in (("delays", True), ("trial", True), ("sales", False)):
        row = _row(page.html, f'data-name="{query}"')
        assert (f'action="/queries/{query}/start/"' in row) is works
        assert (f'value="{query}"' in row) is works  # to be selected with others
        assert row.count("<td") == page.html.count("<th>") + page.html.count("<th ")
    Grant.objects.create(user=dora, all_teams=True)
    assert 'action="/queries/sales/start/"' in Page(client, "/queries/").html


def test_a_failure_in_a_list_is_resolved_where_one_acts(
    client: Client, dora: User, stage: Stage
) -> None:
    at = {"first_seen": stage.now, "last_seen": stage.now}
    for name in ("flights", "shops"):
        application = Application.objects.get(name=name)
        FailureGroup.objects.create(application=application, fingerprint=name, title=name, **at)
    client.force_login(dora)
    html = Page(client, "/failures/").html
    for name, works in (("flights", True), ("shops", False)):
        group = FailureGroup.objects.get(fingerprint=name)
        row = _row(html, f'id="group-{group.pk}"')
        assert (f'action="/failures/groups/{group.pk}/resolve/"' in row) is works


def test_a_window_in_a_list_is_ended_where_one_acts(
    client: Client, dora: User, stage: Stage
) -> None:
    times = {"starts_at": stage.now, "ends_at": timezone.now() + timedelta(days=1)}
    selectors: list[tuple[dict[str, Any], bool]] = [
        ({"applications": ["flights"]}, True),
        ({"applications": ["flights", "shops"]}, False),
        ({"labels": {"team": "data"}}, False),
        ({}, False),
    ]
    windows = [
        Maintenance.objects.create(name="w", selector=selector, created_at=stage.now, **times)
        for selector, _ in selectors
    ]
    client.force_login(dora)
    html = Page(client, "/alerts/maintenance/").html
    for window, (_, works) in zip(windows, selectors, strict=True):
        address = f"/alerts/maintenance/{window.pk}/end/"
        assert (address in html) is works
        assert (client.post(address).status_code == 302) is works


@pytest.mark.parametrize("address", ["/queries/", "/failures/", "/alerts/maintenance/"])
def test_longer_lists_ask_no_more_about_rights(
    client: Client,
    dora: User,
    stage: Stage,
    address: str,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    """What a list asks the database does not depend on how many teams its rows belong to."""

    def more(first: int, last: int) -> None:
        for number in range(first, last):
            team = Team.objects.create(name=f"team-{number}", created_at=stage.now)
            application = stage.application(f"more-{number}")
            Application.objects.filter(pk=application.pk).update(team=team)
            stage.query(f"query-{number}", f"more-{number}")
            seen = {"first_seen": stage.now, "last_seen": stage.now}
            FailureGroup.objects.create(application=application, fingerprint=f"{number}", **seen)
            times = {"starts_at": stage.now, "ends_at": timezone.now() + timedelta(days=1)}
            selector = {"applications": [f"more-{number}"]}
            Maintenance.objects.create(name="w", selector=selector, created_at=stage.now, **times)

    client.force_login(dora)
    more(0, 2)
    client.get(address)
    forget()
    with CaptureQueriesContext(connection) as short:
        client.get(address)
    more(2, 8)
    forget()
    with django_assert_num_queries(len(short)):
        client.get(address)


def _row(html: str, marked: str) -> str:
    """Return the row of a table that carries an attribute."""
    return next(row for row in html.split("<tr")[1:] if marked in row).partition("</tr>")[0]


@pytest.mark.guarantee("G-TEAM-3")
def test_everybody_reads_everything(client: Client, dora: User) -> None:
    client.force_login(dora)
    assert Page(client, "/queries/sales/").status == 200
    listed = {row["name"]: row["team"] for row in client.get("/api/v1/queries/").json()["results"]}
    assert listed == {"delays": "data", "sales": "web", "trial": None}
    assert [row["name"] for row in _rows(client, "/api/v1/queries/?team=web")] == ["sales"]
    assert [row["name"] for row in _rows(client, "/api/v1/applications/?team=web")] == ["shops"]
    page = Page(client, "/queries/?team=web")
    assert "sales" in page.text
    assert "delays" not in page.text
    assert "flights" not in Page(client, "/applications/?team=web").text


def _rows(client: Client, address: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.get(address).json()["results"]
    return rows


def test_several_at_once_start_only_where_one_acts(client: Client, dora: User) -> None:
    client.force_login(dora)
    asked = {"verb": "start", "name": ["delays", "sales", "trial"]}
    seen = client.get("/bulk/queries/", asked)
    assert "Application shops belongs to team web" in seen.content.decode()
    done = client.post("/bulk/queries/", asked, follow=True)
    assert "Application shops belongs to team web" in done.content.decode()
    advance_many(Operation.objects.get().pk, now=timezone.now())
    started = Operation.objects.exclude(query=None).values_list("query__name", flat=True)
    assert sorted(started) == ["delays", "trial"]
    lines = Operation.objects.get(query=None).result["queries"]
    assert {one["name"] for one in lines if one["outcome"] == "REFUSED"} == {"sales"}
    denied = client.post("/bulk/queries/", {"verb": "start", "name": "sales"})
    assert denied.status_code == 403
    assert Operation.objects.filter(query=None).count() == 1


def test_who_began_several_at_once_can_cancel_them_though_some_were_refused(
    client: Client, dora: User
) -> None:
    client.force_login(dora)
    client.post("/bulk/queries/", {"verb": "start", "name": ["delays", "sales"]})
    address = f"/operations/{Operation.objects.get().uuid}/cancel/"
    client.force_login(_member("willa", "operator", "web"))
    assert client.post(address).status_code == 403  # nothing of team web is started
    client.force_login(dora)
    assert client.post(address).status_code == 302
    assert Operation.objects.get().outcome == "CANCELLED"


@pytest.mark.guarantee("G-TEAM-1")
def test_who_acts_for_all_teams_acts_everywhere(client: Client, dora: User) -> None:
    Grant.objects.create(user=dora, all_teams=True)
    client.force_login(dora)
    for name in ("delays", "sales", "trial"):
        answer = client.post(f"/api/v1/queries/{name}/start/", "{}", content_type=JSON)
        assert answer.status_code == 202


@pytest.mark.guarantee("G-TEAM-4")
def test_a_hosts_incident_is_nobodys_in_particular(
    client: Client, dora: User, stage: Stage
) -> None:
    at = {"opened_at": stage.now, "first_opened_at": stage.now, "seen_at": stage.now}
    shops = Application.objects.get(name="shops")
    kinds = {"kind": "host-silent", "severity": "critical", "title": "x"}
    ours = Incident.objects.create(fingerprint="a", host="h1", **kinds, **at)
    theirs = Incident.objects.create(fingerprint="b", application=shops, **kinds, **at)
    client.force_login(dora)
    for row, status in ((ours, 200), (theirs, 403)):
        address = f"/api/v1/incidents/{row.uuid}/acknowledge/"
        assert client.post(address, "{}", content_type=JSON).status_code == status


@pytest.mark.guarantee("G-TEAM-4")
def test_a_window_of_maintenance_silences_ones_own_alone(client: Client, dora: User) -> None:
    client.force_login(dora)
    times = {"starts_at": "2030-01-01T00:00:00Z", "ends_at": "2030-01-01T01:00:00Z"}
    selectors: list[tuple[dict[str, Any], int]] = [
        ({"applications": ["flights"]}, 201),
        ({"applications": ["flights", "shops"]}, 403),
        ({"applications": ["flights", "not there"]}, 403),
        ({"labels": {"team": "data"}}, 403),
        ({}, 403),
    ]
    for selector, status in selectors:
        body = json.dumps({"name": "w", "selector": selector, **times})
        answer = client.post("/api/v1/maintenance/", body, content_type=JSON)
        assert answer.status_code == status, selector
    assert Maintenance.objects.count() == 1
    form = {"name": "w", "hours": "1"}
    assert client.post("/alerts/maintenance/new/", form).status_code == 403


# --- what is new belongs to somebody ------------------------------------------------------


@pytest.mark.guarantee("G-TEAM-4")
def test_a_new_application_is_of_ones_team(client: Client, anton: User) -> None:
    client.force_login(anton)
    made = client.post("/api/v1/applications/", '{"name": "new"}', content_type=JSON)
    assert made.json()["team"] == "data"
    body = json.dumps({"name": "ticks", "spec": SQL})
    assert client.post("/api/v1/queries/", body, content_type=JSON).json()["team"] == "data"
    taken = '{"name": "other", "team": "web"}'
    refused = client.post("/api/v1/applications/", taken, content_type=JSON)
    assert refused.status_code == 403
    assert "You cannot act for team web" in refused.json()["detail"]


def test_who_is_in_several_teams_says_which(client: Client, anton: User) -> None:
    Team.objects.get(name="web").members.add(anton)
    client.force_login(anton)
    answer = client.post("/api/v1/applications/", '{"name": "new"}', content_type=JSON)
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == "team"
    assert "data, web" in answer.json()["problems"][0]["way_out"]
    page = Page(client, "/new/application/")
    assert '<option value="web">' in page.html
    body = '{"name": "new", "team": "web"}'
    assert client.post("/api/v1/applications/", body, content_type=JSON).json()["team"] == "web"


def test_without_teams_everything_is_everybodys(client: Client, author: User) -> None:
    client.force_login(author)
    made = client.post("/api/v1/applications/", '{"name": "new"}', content_type=JSON)
    assert made.json()["team"] is None
    unknown = '{"name": "other", "team": "nobody"}'
    assert client.post("/api/v1/applications/", unknown, content_type=JSON).status_code == 422


def test_a_query_does_not_go_into_the_application_of_others(client: Client, anton: User) -> None:
    client.force_login(anton)
    body = json.dumps({"name": "ticks", "application": "shops", "spec": SQL})
    assert client.post("/api/v1/queries/", body, content_type=JSON).status_code == 403
    clone = '{"name": "copy", "application": "shops", "same_sink": true}'
    address = "/api/v1/queries/delays/clone/"
    assert client.post(address, clone, content_type=JSON).status_code == 403
    page = client.post("/new/query/", {"tab": "json", "do": "create", "json": body})
    assert page.status_code == 403
    assert "belongs to team web" in page.content.decode()
    assert not Query.objects.filter(name__in=["ticks", "copy"]).exists()


# --- admins give teams --------------------------------------------------------------------


@pytest.mark.sql(
    "queries.selectors.access.tokens_of_team",
    "queries.views.access.rights.team_page",
)
def test_an_admin_makes_a_team_chooses_members_and_gives_it_an_application(
    client: Client, two_teams: Stage, admin: User, operator: User
) -> None:
    client.force_login(admin)
    client.post("/settings/teams/new/", {"name": "night"})
    client.post("/settings/teams/night/members/", {"member": ["otto"]})
    client.post("/applications/trial/team/", {"team": "night"})
    page = Page(client, "/settings/teams/night/")
    assert "trial" in page.text
    application = Application.objects.get(name="trial")
    assert application.team is not None
    assert list(application.team.members.all()) == [operator]
    change = Transition.objects.get(application=application, detail__code="TEAM")
    assert (change.before, change.after, change.actor) == ("", "night", "ada")
    tag = Page(client, "/applications/trial/").html
    assert "/settings/teams/night/" in tag
    client.post("/settings/teams/night/delete/")
    assert Team.objects.filter(name="night").exists()  # it has an application
    client.post("/applications/trial/team/", {"team": ""})
    client.post("/settings/teams/night/delete/")
    assert not Team.objects.filter(name="night").exists()


@pytest.mark.parametrize("name", ["", "Data", "a b", "data", "x" * 64])
def test_a_name_that_will_not_do_is_told(
    client: Client, two_teams: Stage, admin: User, name: str
) -> None:
    client.force_login(admin)
    answer = client.post("/settings/teams/new/", {"name": name})
    assert answer.status_code == 422
    assert 'id="name-error"' in answer.content.decode()
    assert Team.objects.count() == 2


def test_an_admin_does_the_same_over_rest(
    client: Client, two_teams: Stage, admin: User, operator: User
) -> None:
    client.force_login(admin)
    body = '{"name": "night", "members": ["otto"]}'
    made = client.post("/api/v1/teams/", body, content_type=JSON)
    assert made.status_code == 201
    assert made.json()["members"] == ["otto"]
    given = client.put("/api/v1/applications/trial/team/", '{"team": "night"}', content_type=JSON)
    assert given.json() == {"team": "night"}
    assert client.get("/api/v1/teams/night/").json()["applications"] == ["trial"]
    assert client.delete("/api/v1/teams/night/").status_code == 409
    none = client.put("/api/v1/applications/trial/team/", '{"team": null}', content_type=JSON)
    assert none.json() == {"team": None}
    kept = client.put("/api/v1/teams/night/", '{"members": ["nobody"]}', content_type=JSON)
    assert kept.status_code == 422
    assert client.get("/api/v1/teams/night/").json()["members"] == ["otto"]
    assert client.delete("/api/v1/teams/night/").status_code == 204


@pytest.mark.guarantee("G-TOKEN-2")
def test_a_token_goes_with_its_team(two_teams: Stage, client: Client, admin: User) -> None:
    create_token(user=admin, name="ci", actor="ada", team="web", now=timezone.now())
    client.force_login(admin)
    client.post("/applications/shops/team/", {"team": ""})
    client.post("/settings/teams/web/delete/")
    assert not AccessToken.objects.exists()


def test_an_admin_gives_the_rights_of_an_account(
    client: Client, admin: User, operator: User
) -> None:
    client.force_login(admin)
    address = f"/settings/users/{operator.pk}/"
    client.post(address, {"do": "grants", "all_teams": "on", "write_python": "on"})
    grant = Grant.objects.get(user=operator)
    assert (grant.all_teams, grant.write_python) == (True, True)
    client.post(address, {"do": "grants"})
    grant.refresh_from_db()
    assert (grant.all_teams, grant.write_python) == (False, False)
