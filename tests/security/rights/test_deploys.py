"""What a token may not do, its deploy may not do either; whose a deploy is, its teams alone end."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from queries.domain.states import Verb
from queries.models.access.accounts import AccessToken, Grant, Scope, Team
from queries.models.access.audit import AuditEntry
from queries.models.applications import Application
from queries.models.definitions import Managed, Query
from queries.models.deploys import Deploy
from queries.services.access.tokens import create_token
from queries.services.deploys.advancing import advance_all
from queries.services.procedures.bulk_operations import begin_many
from tests.scenarios.stage import Stage

DEPLOYS, APPLY = "/api/v1/deploys/", "/api/v1/apply/"
JSON = "application/json"
SQL: dict[str, Any] = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate"}],
    "sql": "SELECT * FROM ticks",
    "sink": {"format": "noop"},
}


@pytest.fixture
def teams(stage: Stage) -> Stage:
    """Flights of team data and shops of team web, each with a query."""
    for team, name, query in (("data", "flights", "delays"), ("web", "shops", "sales")):
        application = stage.application(name)
        application.team = Team.objects.create(name=team, created_at=stage.now)
        application.save()
        stage.query(query, name)
    return stage


def _person(name: str, *teams: str, role: str = "author") -> User:
    user = User.objects.create_user(name)
    user.groups.add(Group.objects.get(name=role))
    for team in teams:
        Team.objects.get(name=team).members.add(user)
    return user


@pytest.fixture
def lena(teams: Stage) -> User:
    """Lena, an author of all teams."""
    user = _person("lena")
    Grant.objects.create(user=user, all_teams=True)
    return user


@pytest.fixture
def anton(teams: Stage) -> User:
    """Anton, an author of team data."""
    return _person("anton", "data")


@pytest.fixture
def wilma(teams: Stage) -> User:
    """Wilma, an author of team web."""
    return _person("wilma", "web")


def _robot(user: User, **limits: Any) -> APIClient:
    _, text = create_token(
        user=user, name="ci", actor="ada", now=timezone.now(), scope=Scope.AUTHOR, **limits
    )
    client = APIClient(REMOTE_ADDR="203.0.113.9")
    client.credentials(HTTP_AUTHORIZATION=f"Token {text}")
    return client


def _application(name: str, **metadata: Any) -> dict[str, Any]:
    about = {"name": name, **metadata}
    return {"apiVersion": "headgate/v1", "kind": "Application", "metadata": about, "spec": {}}


def _query(name: str, application: str = "", **metadata: Any) -> dict[str, Any]:
    about = {"name": name, **({"application": application} if application else {}), **metadata}
    found = {"apiVersion": "headgate/v1", "kind": "Query", "metadata": about, "spec": SQL}
    return {**found, "desired": "RUNNING"}


def _set(*manifests: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"owner": "repo", "manifests": [{"manifest": one} for one in manifests], **more}


def _deploy(caller: Any, *manifests: dict[str, Any], **more: Any) -> Deploy:
    body = {"apply": _set(*manifests, **more), "on_failure": "stop"}
    answer = caller.post(DEPLOYS, json.dumps(body), content_type=JSON)
    assert answer.status_code == 202, answer.content
    return Deploy.objects.get(uuid=answer.json()["id"])


def _as(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


# --- what a token may not do, its deploy may not do either ----------------------------------


@pytest.mark.guarantee("G-TOKEN-3")
def test_new_applications_of_a_teams_token_are_the_teams_in_a_deploy_too(lena: User) -> None:
    robot = _robot(lena, team="data")
    answer = robot.post(APPLY, _set(_application("applied")), format="json")
    assert answer.status_code == 200
    _deploy(robot, _application("deployed"), _query("own"), _query("inside", "deployed"))
    advance_all(now=timezone.now())
    made = Application.objects.filter(name__in=["applied", "deployed", "own"])
    assert {row.name: str(row.team) for row in made} == {
        "applied": "data",
        "deployed": "data",
        "own": "data",
    }


@pytest.mark.guarantee("G-TOKEN-3")
def test_a_deploy_whose_token_was_revoked_writes_nothing_more(lena: User) -> None:
    deploy = _deploy(_robot(lena), _application("deployed"), _query("inside", "deployed"))
    AccessToken.objects.all().delete()
    advance_all(now=timezone.now())
    deploy.refresh_from_db()
    assert deploy.state == "FAILED"
    assert "The token used to request the deploy has expired or was revoked." in str(deploy.reason)
    assert not Application.objects.filter(name="deployed").exists()


def test_a_deploy_whose_token_has_expired_writes_nothing_more(lena: User) -> None:
    deploy = _deploy(_robot(lena), _query("own"))
    AccessToken.objects.update(expiry=timezone.now() - timedelta(seconds=1))
    advance_all(now=timezone.now())
    deploy.refresh_from_db()
    assert deploy.state == "FAILED"
    assert not Query.objects.filter(name="own").exists()


def test_a_deploy_whose_token_lists_less_by_now_is_refused(lena: User) -> None:
    robot = _robot(lena, applications=["flights", "shops"])
    deploy = _deploy(robot, _query("more", "flights"))
    AccessToken.objects.get().applications.remove(Application.objects.get(name="flights"))
    advance_all(now=timezone.now())
    deploy.refresh_from_db()
    assert "The token ci cannot act on application flights" in str(deploy.reason)
    assert not Query.objects.filter(name="more").exists()


@pytest.mark.guarantee("G-TOKEN-3")
def test_what_a_deploy_writes_names_the_token_and_the_address(lena: User) -> None:
    deploy = _deploy(_robot(lena, team="data"), _query("own"))
    advance_all(now=timezone.now())
    token = AccessToken.objects.get()
    deploy.refresh_from_db()
    entries = AuditEntry.objects.filter(actor="lena")
    assert {"deploy", "definition", "applied"} <= set(entries.values_list("kind", flat=True))
    said = set(entries.values_list("token", "token_id", "address"))
    assert said == {("ci", str(token.uuid), "203.0.113.9")}


# --- whose a deploy is, its teams alone end ---------------------------------------------------


def _refused(user: User, address: str) -> str:
    answer = _as(user).post(address, "{}", content_type=JSON)
    assert answer.status_code == 403, answer.content
    return str(answer.json()["detail"])


def _cancel(deploy: Deploy) -> str:
    return f"{DEPLOYS}{deploy.uuid}/cancel/"


@pytest.mark.guarantee("G-TEAM-5")
@pytest.mark.parametrize(
    "manifests",
    [
        [_application("new")],
        [_query("new")],
        [_query("inside", "new"), _application("new")],
    ],
    ids=["an application", "a query with its own", "both"],
)
def test_a_deploy_of_new_things_is_ended_by_their_team_alone(
    anton: User, wilma: User, manifests: list[dict[str, Any]]
) -> None:
    deploy = _deploy(_as(anton), *manifests)
    assert "belongs to team data" in _refused(wilma, _cancel(deploy))
    assert _as(anton).post(_cancel(deploy), "{}", content_type=JSON).status_code == 200


def test_it_is_the_teams_once_the_things_are_there_too(anton: User, wilma: User) -> None:
    deploy = _deploy(_as(anton), _query("new"))
    advance_all(now=timezone.now())
    assert Application.objects.get(name="new").team is not None
    assert "belongs to team data" in _refused(wilma, _cancel(deploy))


def test_a_deploy_of_labels_is_ended_by_its_team_alone(anton: User, wilma: User) -> None:
    manifest = _query("delays", "flights", labels={"team": "a"})
    manifest["spec"] = Query.objects.get(name="delays").revisions.get().spec
    deploy = _deploy(_as(anton), manifest | {"desired": "STOPPED"})
    assert not deploy.changes.exists()
    assert "belongs to team data" in _refused(wilma, _cancel(deploy))


def test_a_deploy_that_prunes_is_ended_by_its_team_alone(anton: User, wilma: User) -> None:
    about = {"owner": "repo", "applied": {}, "applied_at": timezone.now(), "applied_by": "ada"}
    Managed.objects.create(query=Query.objects.get(name="delays"), **about)
    deploy = _deploy(_as(anton), _application("flights"), prune=True)
    assert not deploy.changes.exists()
    assert "belongs to team data" in _refused(wilma, _cancel(deploy))


@pytest.mark.guarantee("G-TEAM-5")
def test_a_deploy_of_nothing_that_anybody_owns_takes_all_teams(
    lena: User, anton: User, wilma: User
) -> None:
    deploy = Deploy.objects.create(actor="lena", good={}, created_at=timezone.now())
    assert "applications of all teams" in _refused(wilma, _cancel(deploy))
    assert _as(lena).post(_cancel(deploy), "{}", content_type=JSON).status_code == 200
    nothing = f"{DEPLOYS}{'0' * 8}-0000-4000-8000-{'0' * 12}/cancel/"
    assert _as(wilma).post(nothing, "{}", content_type=JSON).status_code == 404


@pytest.mark.parametrize("verb", [Verb.START_MANY, Verb.PRUNE])
def test_an_operation_on_applications_is_cancelled_by_their_team_alone(
    teams: Stage, verb: Verb
) -> None:
    dora, olga = _person("dora", "data", role="operator"), _person("olga", "web", role="operator")
    flights = Application.objects.get(name="flights")
    asked = begin_many(verb, [], applications=[flights], actor="dora", now=timezone.now())
    address = f"/api/v1/operations/{asked.uuid}/cancel/"
    assert "belongs to team data" in _refused(olga, address)
    assert _as(dora).post(address, "{}", content_type=JSON).status_code in (202, 409)


def test_an_operation_on_what_is_gone_takes_all_teams(teams: Stage) -> None:
    olga = _person("olga", "web", role="operator")
    asked = begin_many(Verb.STOP_MANY, [], actor="dora", now=timezone.now())
    address = f"/api/v1/operations/{asked.uuid}/cancel/"
    assert "applications of all teams" in _refused(olga, address)
