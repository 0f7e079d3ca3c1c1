"""The pages of an application that runs a script, and of the queries that the script starts."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.applications import Application, Script
from tests.scenarios.scripts.stage import ScriptStage
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db


@pytest.fixture
def stage() -> ScriptStage:
    stage = ScriptStage()
    stage.running()
    stage.find("counts", temporary="a socket cannot send its rows again")
    stage.launcher.says("job", "The script requests spark.master=local[*], which is not applied.")
    stage.look("job")
    return stage


def test_its_page_says_what_runs_and_what_the_script_does_not_get(
    client: Client, operator: User, stage: ScriptStage
) -> None:
    client.force_login(operator)
    page = Page(client, "/applications/job/")
    assert "/code/job.py" in page.text
    assert "The script is running." in page.text
    assert "requests spark.master=local[*], which is not applied" in page.text
    assert "temporary checkpoint: a socket cannot send its rows again" in page.text
    assert 'href="/queries/job~counts/"' in page.html


def test_it_is_started_and_stopped_there(
    client: Client, operator: User, stage: ScriptStage
) -> None:
    client.force_login(operator)
    page = Page(client, "/applications/job/stop/")
    assert page.status == 200
    assert "It will not run until a user starts it again." in page.text
    client.post("/applications/job/stop/", {"mode": "graceful"})
    assert Script.objects.get().desired == "STOPPED"
    client.post("/applications/job/start/")
    assert Script.objects.get().desired == "RUNNING"


def test_its_buttons_are_those_that_would_change_something(
    client: Client, operator: User, stage: ScriptStage
) -> None:
    client.force_login(operator)
    assert 'data-can="stop restart"' in Page(client, "/applications/job/").html
    client.post("/applications/job/stop/", {"mode": "graceful"})
    assert 'data-can="start stop-now"' in Page(client, "/applications/job/").html
    stage.launcher.leave("job")
    stage.look("job")
    assert 'data-can="start"' in Page(client, "/applications/job/").html


@pytest.mark.parametrize(
    "tab", ["", "runs/", "failures/", "definition/", "activity/", "checkpoint/", "trigger/", "lag/"]
)
def test_a_query_of_it_has_its_pages_and_no_buttons_of_its_own(
    client: Client, author: User, stage: ScriptStage, tab: str
) -> None:
    client.force_login(author)
    page = Page(client, f"/queries/job~counts/{tab}")
    assert page.status == 200
    assert "job/counts" in page.text
    assert "act-start" not in page.html
    assert "/api/v1/queries/job~counts/" in page.html
    assert "/api/v1/queries/job~counts/stop/" not in page.html
    assert "/queries/job~counts/edit/" not in page.html
    assert 'href="/applications/job/"' in page.html


def test_what_is_sent_all_the_same_is_answered_with_the_way_out(
    client: Client, author: User, stage: ScriptStage
) -> None:
    client.force_login(author)
    answer = client.post("/queries/job~counts/stop/", {"mode": "now"}, follow=True)
    assert "Start, stop or restart application job" in answer.content.decode()


def test_the_lists_show_it(client: Client, operator: User, stage: ScriptStage) -> None:
    client.force_login(operator)
    assert "job/counts" in Page(client, "/queries/").text
    assert "job/counts" in Page(client, "/applications/").text


def test_the_form_defines_a_script(
    client: Client, author: User, tmp_path: Path, settings: Any
) -> None:
    (tmp_path / "daily.py").write_text("")
    settings.CODE_ROOTS = [tmp_path]
    client.force_login(author)
    form = Page(client, "/new/application/", form="definition")
    typed = {"name": "daily", "kind": "script", "python_path": str(tmp_path)}
    after = form.press("create", **typed, script_file=f"{tmp_path}/none.py")
    assert "is not a file on this host" in after.error_at("script_file")
    after.press("create", script_file=f"{tmp_path}/daily.py", script_arguments="--day\n2026-03-01")
    spec = Application.objects.get(name="daily").revisions.get().spec
    assert (spec["kind"], spec["script"]["file"]) == ("script", f"{tmp_path}/daily.py")
    assert spec["script"]["arguments"] == ["--day", "2026-03-01"]
    form = Page(client, "/applications/daily/edit/", form="definition")
    assert form.fields["script_file"] == f"{tmp_path}/daily.py"


def test_an_author_answers_which_query_is_which_and_an_operator_sees_it(
    client: Client, operator: User, author: User, stage: ScriptStage
) -> None:
    stage.find("kept")
    stage.launcher.asks("job", "new", stage.row("job/kept").pk)
    stage.look("job")
    client.force_login(operator)
    page = Page(client, "/applications/job/")
    assert "“new”" in page.text or '"new" is new' in page.text
    assert "An author must say whether a query was renamed" in page.text
    assert "/applications/job/question/" not in page.html
    assert client.get("/applications/job/question/").status_code == 403

    client.force_login(author)
    assert "/applications/job/question/" in Page(client, "/applications/job/").html
    page = Page(client, "/applications/job/question/")
    assert "The same as job/kept" in page.text
    assert "Another query" in page.text
    sent = {"identity": "name:new", "same_as": "job/kept"}
    answer = client.post("/applications/job/question/", sent, follow=True)
    assert "It is job/kept. Script job continues." in answer.content.decode()
    assert "job/new" in Page(client, "/applications/job/").text
    after = client.get("/applications/job/question/", follow=True)
    assert "Script job is not waiting for an answer." in after.content.decode()
