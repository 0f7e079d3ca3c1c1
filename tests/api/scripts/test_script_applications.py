"""Applications of kind script over REST: defined, started, stopped, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from queries.models.applications import Application, Script
from tests.api.conftest import SPEC
from tests.scenarios.scripts.stage import ScriptStage

pytestmark = pytest.mark.django_db

ADDRESS = "/api/v1/applications/"


@pytest.fixture
def jobs(tmp_path: Path, settings: Any) -> Path:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "job.py").write_text("print('done')\n")
    settings.CODE_ROOTS = [folder]
    return folder


def spec(jobs: Path, **script: Any) -> dict[str, Any]:
    script = script or {"file": f"{jobs}/job.py", "arguments": ["--day", "today"]}
    return {"kind": "script", "script": script, "python_path": [str(jobs)]}


@pytest.fixture
def stage(as_operator: APIClient) -> ScriptStage:
    stage = ScriptStage()
    stage.running("counts")
    return stage


def test_a_script_is_defined_started_and_stopped(as_author: APIClient, jobs: Path) -> None:
    made = as_author.post(ADDRESS, {"name": "job", "spec": spec(jobs)}, format="json")
    assert made.status_code == 201, made.json()
    body = made.json()
    assert body["spec"]["script"]["arguments"] == ["--day", "today"]
    assert (body["script"]["desired"], body["script"]["phase"]) == ("STOPPED", "STOPPED")

    started = as_author.post(body["links"]["start"], {}, format="json")
    assert started.status_code == 202
    assert started.json()["verb"] == "start"
    assert Script.objects.get().desired == "RUNNING"
    stopped = as_author.post(body["links"]["stop"], {"mode": "graceful"}, format="json")
    assert stopped.status_code == 202
    assert Script.objects.get().desired == "STOPPED"


@pytest.mark.parametrize(
    ("script", "field"),
    [
        ({"file": "/etc/passwd.py"}, "script.file"),
        ({"file": "JOBS/none.py"}, "script.file"),
        ({"module": "none"}, "script.module"),
        ({"file": "JOBS/job.py", "submit": {"files": ["JOBS/none.txt"]}}, "script.submit"),
        ({"file": "JOBS/job.py", "argument": ["x"]}, "script.argument"),
    ],
)
def test_a_script_that_is_not_there_is_refused_at_its_field(
    as_author: APIClient, jobs: Path, script: dict[str, Any], field: str
) -> None:
    def here(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: here(part) for name, part in value.items()}
        if isinstance(value, list):
            return [here(part) for part in value]
        return value.replace("JOBS", str(jobs))

    body = {"name": "job", "spec": spec(jobs, **here(script))}
    answer = as_author.post(ADDRESS, body, format="json")
    assert answer.status_code == 422
    [error] = answer.json()["problems"]
    assert error["field"].startswith(field)
    assert error["way_out"]
    assert not Application.objects.exists()


@pytest.mark.sql("queries.api.definitions.changes._newest")
def test_the_kind_of_an_application_stays(as_author: APIClient, jobs: Path) -> None:
    as_author.post(ADDRESS, {"name": "job", "spec": spec(jobs)}, format="json")
    answer = as_author.patch(
        f"{ADDRESS}job/", {"spec": {"kind": "queries", "script": None}}, format="json"
    )
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"].endswith("kind")


def test_no_query_is_defined_in_it(as_author: APIClient, jobs: Path) -> None:
    as_author.post(ADDRESS, {"name": "job", "spec": spec(jobs)}, format="json")
    body = {"name": "delays", "application": "job", "spec": SPEC}
    answer = as_author.post("/api/v1/queries/", body, format="json")
    assert answer.status_code == 422
    [error] = answer.json()["problems"]
    assert "runs a script" in error["message"]


@pytest.mark.sql("queries.selectors.supervision.query_filters.queries")
def test_what_it_has_started_is_read_like_any_query(
    as_operator: APIClient, stage: ScriptStage
) -> None:
    body = as_operator.get("/api/v1/queries/job~counts/").json()
    assert (body["name"], body["phase"], body["discovered"]) == ("job/counts", "RUNNING", True)
    assert body["checkpoint"].endswith("/counts")
    runs = as_operator.get(body["links"]["runs"]).json()
    assert len(runs["results"]) == 1
    listed = as_operator.get("/api/v1/queries/?application=job").json()
    assert [row["name"] for row in listed["results"]] == ["job/counts"]
    script = as_operator.get(f"{ADDRESS}job/").json()["script"]
    assert (script["phase"], script["notes"]) == ("RUNNING", [])


@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
def test_it_is_not_acted_on_by_itself(
    as_operator: APIClient, stage: ScriptStage, verb: str
) -> None:
    answer = as_operator.post(f"/api/v1/queries/job~counts/{verb}/", {}, format="json")
    assert answer.status_code == 409
    assert "application job" in str(answer.json())


def test_it_is_not_edited(as_author: APIClient, stage: ScriptStage) -> None:
    answer = as_author.patch(
        "/api/v1/queries/job~counts/", {"spec": {"pool": "light"}}, format="json"
    )
    assert answer.status_code == 409
    assert "change the query in its script" in str(answer.json())
    answer = as_author.post(
        "/api/v1/queries/job~counts/clone/", {"name": "copy", "batch": 0}, format="json"
    )
    assert answer.status_code in (409, 422)
    assert (
        as_author.post("/api/v1/queries/job~counts/preflight/", {}, format="json").status_code
        == 409
    )


@pytest.mark.sql("queries.selectors.code.candidate_queries")
def test_a_question_is_shown_to_all_and_answered_by_authors(
    as_operator: APIClient, as_author: APIClient, stage: ScriptStage
) -> None:
    stage.launcher.asks("job", "new", stage.row("job/counts").pk)
    stage.look("job")
    body = as_operator.get(f"{ADDRESS}job/").json()
    assert body["script"]["question"] == {
        "identity": "name:new",
        "query": '"new"',
        "checkpoint": "",
        "missing": ["job/counts"],
    }
    answer = {"identity": "name:new", "same_as": "job/counts"}
    address = body["links"]["answer"]
    assert as_operator.post(address, answer, format="json").status_code == 403
    wrong = as_author.post(address, answer | {"same_as": "job/none"}, format="json")
    assert wrong.status_code == 422
    assert wrong.json()["problems"][0]["way_out"] == "Choose one of job/counts."
    said = as_author.post(address, answer, format="json")
    assert said.status_code == 200, said.json()
    assert said.json()["script"]["question"] is None
    assert said.json()["queries"] == ["job/new"]
    assert as_author.post(address, answer, format="json").status_code == 409
