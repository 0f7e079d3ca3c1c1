"""Who may not write Python brings no code into a driver, by any door; the same with the right."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from pytest_django.fixtures import Settings

from queries.models.access.accounts import Grant
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.models.deploys import Deploy
from queries.models.history import Operation
from tests.api.conftest import calling
from tests.checkpoints.forms import write_checkpoint
from tests.scenarios.stage import Stage
from tests.web.browserless import Page

__all__ = ["calling"]

SQL: dict[str, Any] = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate"}],
    "sql": "SELECT * FROM ticks",
    "sink": {"format": "noop"},
    "trigger": {"kind": "processing_time", "interval": "5 seconds"},
}


@pytest.fixture
def code(tmp_path: Path, settings: Settings) -> str:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "job.py").write_text("def build(spark, params): ...\nclass Listener: ...\n")
    settings.CODE_ROOTS = [folder]
    return str(folder)


@pytest.fixture
def world(stage: Stage, code: str, tmp_path: Path, settings: Settings) -> Stage:
    """A query in SQL, one in Python and one that was, in applications that have code."""
    stage.application("flights", python_path=[code], master="local[4]", connectors=[], env={})
    stage.query("delays", "flights")
    stage.query("planes", "flights")
    python = {"kind": "python", "function": "job:build", "sink": {"format": "noop"}}
    python["trigger"] = SQL["trigger"]
    Query.objects.get(name="planes").revisions.update(kind="python", spec=python)
    stage.application("trips", python_path=[code], master="local[4]", connectors=[], env={})
    rides = stage.query("rides", "trips")
    rides.revisions.update(kind="python", spec=python)
    rides.revisions.create(number=2, kind="sql", spec=SQL, author="ada", created_at=stage.now)
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"
    location = tmp_path / "checkpoints/planes"
    Checkpoint.objects.filter(query__name="planes").update(location=f"file://{location}")
    write_checkpoint(location, batches=range(2), source="kafka")
    return stage


@pytest.fixture
def sam(db: None) -> User:
    """Sam, an author of SQL."""
    user = User.objects.create_user("sam")
    user.groups.add(Group.objects.get(name="author"))
    return user


def _rest(method: str, address: str, body: Any) -> Callable[[Client, str], Any]:
    def knock(client: Client, code: str) -> Any:
        text = json.dumps(body).replace("CODE", code)
        kind = "application/json"
        extra = {"HTTP_IF_MATCH": client.get(address)["ETag"]} if method == "PUT" else {}
        return client.generic(method, address, text, content_type=kind, **extra)  # type: ignore[arg-type]

    return knock


def _page(address: str, form: dict[str, Any]) -> Callable[[Client, str], Any]:
    def knock(client: Client, code: str) -> Any:
        sent = {key: str(value).replace("CODE", code) for key, value in form.items()}
        return client.post(address, sent)

    return knock


_PYTHON = {
    "kind": "python",
    "function": "job:build",
    "sink": {"format": "noop"},
    "trigger": SQL["trigger"],
}
_OWN = {"name": "new", "spec": SQL}
_APPLICATION = "/api/v1/applications/flights/"
_QUERY = "/api/v1/queries/delays/"
_KAFKA = {
    **SQL,
    "sink": {
        "format": "kafka",
        "options": {
            "kafka.bootstrap.servers": "localhost:9",
            "topic": "t",
            "kafka.sasl.kerberos.kinit.cmd": "/tmp/x",
            "kafka.security.protocol": "SASL_SSL",
        },
    },
}
_SCRIPT = {"kind": "script", "script": {"file": "CODE/job.py"}, "python_path": ["CODE"]}


def _set(kind: str, name: str, spec: Any, **metadata: str) -> dict[str, Any]:
    about = {"name": name, **metadata}
    one = {"apiVersion": "headgate/v1", "kind": kind, "metadata": about, "spec": spec}
    return {"owner": "repo", "manifests": [{"manifest": one}]}


def _applied(kind: str, name: str, spec: Any, **metadata: str) -> Callable[[Client, str], Any]:
    return _rest("POST", "/api/v1/apply/", _set(kind, name, spec, **metadata))


def _deployed(kind: str, name: str, spec: Any, **metadata: str) -> Callable[[Client, str], Any]:
    return _rest("POST", "/api/v1/deploys/", {"apply": _set(kind, name, spec, **metadata)})


DOORS = {
    "an apply: a query": _applied("Query", "new", _PYTHON, application="flights"),
    "an apply: code": _applied("Application", "new", {"python_path": ["CODE"]}),
    "an apply: packages": _applied("Application", "new", {"packages": "requests==2.32.3"}),
    "an apply: a script": _applied("Application", "new", _SCRIPT),
    "an apply: an application that is there": _applied(
        "Application", "flights", {"env": {"A": "x"}}
    ),
    "a deploy: a query": _deployed("Query", "new", _PYTHON, application="flights"),
    "a deploy: code": _deployed("Application", "new", {"python_path": ["CODE"]}),
    "a deploy: a script": _deployed("Application", "new", _SCRIPT),
    "a rollback": _rest("POST", "/api/v1/queries/rides/rollback/", {"revision": 1}),
    "a clone": _rest(
        "POST", "/api/v1/queries/planes/clone/", {"name": "new", "sink": {"format": "noop"}}
    ),
    "a clone into another application": _rest(
        "POST",
        "/api/v1/queries/planes/clone/",
        {"name": "new", "application": "trips", "same_sink": True},
    ),
    "a new query": _rest(
        "POST", "/api/v1/queries/", {"name": "new", "application": "flights", "spec": _PYTHON}
    ),
    "a new query's application: code": _rest(
        "POST", "/api/v1/queries/", {**_OWN, "application_spec": {"python_path": ["CODE"]}}
    ),
    "a new query's application: master": _rest(
        "POST", "/api/v1/queries/", {**_OWN, "application_spec": {"master": "spark://evil:7077"}}
    ),
    "a new query's application: variables": _rest(
        "POST", "/api/v1/queries/", {**_OWN, "application_spec": {"env": {"PLUGIN": "x"}}}
    ),
    "a program in an option": _rest(
        "POST",
        "/api/v1/queries/",
        {"name": "new", "application_spec": {"connectors": ["kafka"]}, "spec": _KAFKA},
    ),
    "a query replaced": _rest("PUT", _QUERY, {"spec": _PYTHON}),
    "a query merged": _rest("PATCH", "/api/v1/queries/planes/", {"spec": {"params": {"a": "b"}}}),
    "a query's trigger": _rest(
        "PATCH", "/api/v1/queries/planes/", {"spec": {"trigger": {"interval": "1 minute"}}}
    ),
    "a new application": _rest(
        "POST", "/api/v1/applications/", {"name": "new", "spec": {"python_path": ["CODE"]}}
    ),
    "an application's code": _rest("PATCH", _APPLICATION, {"spec": {"python_path": None}}),
    "an application's listeners": _rest(
        "PATCH", _APPLICATION, {"spec": {"listeners": ["job:Listener"]}}
    ),
    "an application replaced": _rest("PUT", _APPLICATION, {"spec": {"listeners": []}}),
    "an application's variables": _rest("PATCH", _APPLICATION, {"spec": {"env": {"PLUGIN": "x"}}}),
    "a preflight": _rest("POST", f"{_QUERY}preflight/", {"spec": _PYTHON}),
    "the page of a new query": _page(
        "/new/query/",
        {
            "tab": "json",
            "do": "create",
            "json": json.dumps({"name": "new", "application": "flights", "spec": _PYTHON}),
        },
    ),
    "the page of a query": _page(
        "/queries/delays/edit/",
        {"tab": "json", "do": "apply", "json": json.dumps({"spec": _PYTHON})},
    ),
    "the page of a query: its preflight": _page(
        "/queries/delays/edit/",
        {"tab": "json", "do": "preflight", "json": json.dumps({"spec": _PYTHON})},
    ),
    "the page of a new application": _page(
        "/new/application/",
        {
            "name": "new",
            "master": "local[2]",
            "memory": "1g",
            "python_path": "CODE",
            "scheduler_mode": "FAIR",
            "failure_scope": "query",
        },
    ),
    "the page of an application": _page(
        "/applications/flights/edit/",
        {
            "master": "local[4]",
            "memory": "1g",
            "python_path": "CODE",
            "listeners": "job:Listener",
            "scheduler_mode": "FAIR",
            "failure_scope": "query",
            "do": "review",
        },
    ),
}


def _state() -> Iterator[Any]:
    for query in Query.objects.order_by("pk"):
        yield query.name, query.revisions.count()
    for application in Application.objects.order_by("pk"):
        yield application.name, application.revisions.count()
    yield Operation.objects.count()
    yield Deploy.objects.count()


@pytest.mark.guarantee("G-PYTHON-1", "G-CONFIG-6")
@pytest.mark.parametrize("door", list(DOORS))
def test_a_door_is_shut_to_who_writes_sql_alone_and_open_with_the_right(
    client: Client, world: Stage, sam: User, code: str, door: str
) -> None:
    client.force_login(sam)
    before = list(_state())
    refused = DOORS[door](client, code)
    assert refused.status_code == 403, refused.content[:500]
    assert "Python" in refused.content.decode()
    assert list(_state()) == before
    Grant.objects.create(user=sam, write_python=True)
    taken = DOORS[door](client, code)
    assert taken.status_code in (200, 201, 202, 302, 409, 422), taken.content[:500]
    assert "permission to write Python" not in taken.content.decode()


def test_sql_in_an_application_with_code_is_saved_started_and_changed(
    client: Client, world: Stage, sam: User
) -> None:
    client.force_login(sam)
    new = {"name": "new", "application": "flights", "spec": SQL}
    made = client.post("/api/v1/queries/", json.dumps(new), content_type="application/json")
    assert made.status_code == 201
    part = {"spec": {"memory": "2g"}}
    kind = "application/json"
    assert client.patch(_APPLICATION, json.dumps(part), content_type=kind).status_code == 200
    start = client.post("/api/v1/queries/planes/start/", "{}", content_type=kind)
    assert start.status_code == 202


def test_the_form_offers_sql_alone_and_says_why(client: Client, world: Stage, sam: User) -> None:
    client.force_login(sam)
    page = Page(client, "/new/query/")
    assert "You don't have permission to write Python; an admin can grant it." in page.text
    assert 'value="python"' not in page.html
    assert "Code folders" not in page.text
    Grant.objects.create(user=sam, write_python=True)
    page = Page(client, "/new/query/")
    assert 'value="python"' in page.html
    assert "Code folders" in page.text


def test_an_application_keeps_its_code_when_an_author_of_sql_saves_its_form(
    client: Client, world: Stage, sam: User, code: str
) -> None:
    client.force_login(sam)
    form = {
        "master": "local[4]",
        "memory": "2g",
        "python_path": code,
        "scheduler_mode": "FAIR",
        "failure_scope": "query",
    }
    page = client.post("/applications/flights/edit/", {**form, "do": "review"})
    assert page.status_code == 200
    assert code in Page(client, "/applications/flights/edit/").html


def test_a_token_writes_no_more_than_its_user(
    world: Stage, sam: User, calling: Callable[[User], Any], code: str
) -> None:
    body = {"name": "new", "application": "flights", "spec": _PYTHON}
    caller = calling(sam)
    assert caller.post("/api/v1/queries/", body, format="json").status_code == 403
    Grant.objects.create(user=sam, write_python=True)
    assert calling(sam).post("/api/v1/queries/", body, format="json").status_code == 201
