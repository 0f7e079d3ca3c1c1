"""A script in manifests: whether it is to run is its file's, as of a query."""

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from queries.models.applications import Application, Script
from queries.models.history import Operation
from queries.services.supervision import application_operations as verbs
from tests.api.manifests.conftest import Send, application, outcomes
from tests.services.bulk import advance_many

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(tmp_path: Path, settings: Any) -> dict[str, Any]:
    (tmp_path / "job.py").write_text("print('done')\n")
    settings.CODE_ROOTS = [tmp_path]
    script = {"file": f"{tmp_path}/job.py"}
    return application("job", kind="script", script=script, python_path=[str(tmp_path)])


def carried_out(answer: Any) -> None:
    [uuid] = answer["operations"]
    operation = Operation.objects.get(uuid=uuid)
    assert advance_many(operation.pk, now=operation.created_at)


def desired() -> str:
    return Script.objects.get().desired


def of(answer: Any, field: str = "changes") -> Any:
    return answer["objects"][0][field]


def test_a_new_one_is_started_where_its_file_says_so(send: Send, job: dict[str, Any]) -> None:
    answer = send(job, dry_run=True)
    assert answer["operations"] == []
    answer = send(job | {"desired": "RUNNING"})
    assert outcomes(answer) == {"job": "created"}
    assert desired() == "STOPPED"
    carried_out(answer)
    assert desired() == "RUNNING"
    assert Operation.objects.filter(verb="start", application__name="job").count() == 1


def test_what_its_file_does_not_say_stays_as_it_is(send: Send, job: dict[str, Any]) -> None:
    send(job)
    verbs.request_script_start(
        application=Application.objects.get(), actor="olga", now=timezone.now()
    )
    answer = send(job)
    assert (outcomes(answer), answer["operations"]) == ({"job": "unchanged"}, [])
    assert of(answer, "drift") is None
    assert desired() == "RUNNING"


def test_a_change_is_told_by_a_dry_run_and_made_by_an_apply(
    send: Send, job: dict[str, Any]
) -> None:
    carried_out(send(job | {"desired": "RUNNING"}))
    change = {"field": "desired", "before": "RUNNING", "after": "STOPPED"}
    answer = send(job | {"desired": "STOPPED"}, dry_run=True)
    assert (outcomes(answer), of(answer)) == ({"job": "changed"}, [change])
    assert desired() == "RUNNING"
    carried_out(send(job | {"desired": "STOPPED"}))
    assert desired() == "STOPPED"
    answer = send(job | {"desired": "STOPPED"})
    assert (outcomes(answer), answer["operations"]) == ({"job": "unchanged"}, [])


def test_one_that_was_stopped_on_a_page_has_drifted_and_is_exported_so(
    send: Send, job: dict[str, Any], as_author: APIClient
) -> None:
    carried_out(send(job | {"desired": "RUNNING"}))
    [file] = as_author.get("/api/v1/export/?application=job").json()["manifests"]
    assert file["manifest"]["desired"] == "RUNNING"
    as_author.post("/api/v1/applications/job/stop/", {}, format="json")
    edited = {"field": "desired", "before": "RUNNING", "after": "STOPPED"}
    owner = as_author.get("/api/v1/applications/job/owner/").json()
    assert owner["drift"]["changes"] == [edited]
    [drift] = of(send(job | {"desired": "RUNNING"}, dry_run=True), "drift")["changes"]
    assert drift == edited
    [file] = as_author.get("/api/v1/export/?application=job").json()["manifests"]
    assert file["manifest"]["desired"] == "STOPPED"
    answer = send(file["manifest"])
    assert (outcomes(answer), answer["operations"]) == ({"job": "unchanged"}, [])
    assert as_author.get("/api/v1/applications/job/owner/").json()["drift"] is None


def test_an_export_of_what_no_file_has_said_starts_nothing_elsewhere(
    send: Send, job: dict[str, Any], as_author: APIClient
) -> None:
    send(job)
    verbs.request_script_start(
        application=Application.objects.get(), actor="olga", now=timezone.now()
    )
    [file] = as_author.get("/api/v1/export/?application=job").json()["manifests"]
    assert "desired" not in file["manifest"]


def test_an_application_that_runs_queries_has_none(send: Send) -> None:
    answer = send(application("flights") | {"desired": "RUNNING"}, status=422)
    [problem] = of(answer, "problems")
    assert problem["field"] == "desired"
    assert problem["way_out"] == "Remove it; each query has its own desired state."
