"""Queries over REST: the body that CI reads, the list and its filters, create, delete."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from queries.domain.protocol import ExecutorSeen
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Run
from queries.services.supervision.records import note_verdicts
from tests.api.conftest import SPEC
from tests.listeners.rows import store_batch
from tests.scenarios.stage import NO_SUCH_SOURCE, Stage

#: What the issue promises of a query's body.
PROMISED = {
    "name",
    "application",
    "revision",
    "running_revision",
    "desired",
    "phase",
    "phase_reason",
    "phase_reason_code",
    "phase_detail_code",
    "health",
    "current_run",
    "last_progress",
    "dropped_events",
    "failures",
    "next_attempt_at",
}


def names(answer: Any) -> list[str]:
    return [row["name"] for row in answer.json()["results"]]


def test_a_stopped_query_says_so(as_viewer: APIClient, stage: Stage) -> None:
    stage.query("delays")
    body = as_viewer.get("/api/v1/queries/delays/").json()
    assert set(body) >= PROMISED
    assert (body["desired"], body["phase"]) == ("STOPPED", "STOPPED")
    assert body["revision"] == 1
    assert body["running_revision"] is None
    assert body["health"] is None
    assert body["current_run"] is None
    assert body["last_progress"] is None
    assert body["dropped_events"] == {"bus": 0, "outbox": 0, "missing_batches": 0, "repaired": 0}
    assert body["checkpoint"] == "file:///checkpoints/delays"
    assert body["spec"]["sql"] == "SELECT * FROM flights"


def test_a_running_query_names_its_run_and_its_driver(as_viewer: APIClient, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    body = as_viewer.get("/api/v1/queries/delays/").json()
    run = stage.run("delays")
    assert (body["desired"], body["phase"], body["running_revision"]) == ("RUNNING", "RUNNING", 1)
    assert body["current_run"] == {
        "id": run.pk,
        "driver": run.driver_id,
        "epoch": run.epoch,
        "pid": run.driver.pid,
        "jvm_pid": run.driver.jvm_pid,
        "host": run.driver.host,
        "started_at": body["current_run"]["started_at"],
        "spark_run_id": run.spark_run_id,
    }


def test_the_list_is_sorted_and_goes_on_behind_a_cursor(as_viewer: APIClient, stage: Stage) -> None:
    for name in ("c", "a", "e", "b", "d"):
        stage.query(name)
    first = as_viewer.get("/api/v1/queries/?limit=2")
    assert names(first) == ["a", "b"]
    stage.query("aa")  # a newcomer before the cursor shifts nothing
    second = as_viewer.get(first.json()["next"])
    third = as_viewer.get(second.json()["next"])
    assert names(second) + names(third) == ["c", "d", "e"]
    assert third.json()["next"] is None


@pytest.mark.sql
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("phase=RUNNING", ["delays"]),
        ("phase=RUNNING&phase=STOPPED", ["alarms", "delays"]),
        ("desired=STOPPED", ["alarms"]),
        ("application=delays", ["delays"]),
        ("search=LAR", ["alarms"]),
        pytest.param(
            "pool=heavy",
            ["alarms"],
            marks=pytest.mark.sql("queries.selectors.supervision.query_filters._pool"),
        ),
        ("health=STALLED", ["delays"]),  # the stage's clock stands in January
        ("health=IDLE", []),
        ("search=nothing", []),
    ],
)
def test_the_list_is_filtered(
    as_viewer: APIClient, stage: Stage, filters: str, found: list[str]
) -> None:
    stage.query("delays")
    stage.query("alarms", pool="heavy")
    stage.up("delays")
    note_verdicts(now=datetime.now(UTC))
    assert names(as_viewer.get(f"/api/v1/queries/?{filters}")) == found


@pytest.mark.parametrize(
    "wrong", ["phase=SLEEPING", "health=FINE", "limit=0", "limit=x", "limit=201", "cursor=%C3%A9"]
)
def test_a_filter_that_makes_no_sense_is_named(as_viewer: APIClient, wrong: str) -> None:
    answer = as_viewer.get(f"/api/v1/queries/?{wrong}")
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == wrong.partition("=")[0]


def test_a_list_costs_as_many_database_queries_however_long_it_is(
    as_viewer: APIClient, stage: Stage, django_assert_num_queries: Any
) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    stage.query("a0")
    stage.up("a0")
    as_viewer.get("/api/v1/me/")  # writes when the token was used
    with CaptureQueriesContext(connection) as few:
        as_viewer.get("/api/v1/queries/")
    for number in range(1, 6):
        stage.query(f"a{number}")
        stage.up(f"a{number}")
    with django_assert_num_queries(len(few)):
        answer = as_viewer.get("/api/v1/queries/")
    assert len(names(answer)) == 6


@pytest.mark.parametrize("host", ["", "far"])
def test_so_does_a_list_of_stopped_queries_whose_checkpoints_are_not_local(
    as_viewer: APIClient, stage: Stage, django_assert_num_queries: Any, host: str
) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def stopped(*names: str) -> None:
        for name in names:
            stage.query(name)
            stage.up(name)
            stage.stop(name)
            Checkpoint.objects.filter(query__name=name).update(location=f"s3a://flights/{name}")
        if host:
            Driver.objects.update(host=host)

    stopped("a0")
    as_viewer.get("/api/v1/me/")  # writes when the token was used
    with CaptureQueriesContext(connection) as few:
        as_viewer.get("/api/v1/queries/")
    stopped("a1", "a2", "a3")
    with django_assert_num_queries(len(few)):
        answer = as_viewer.get("/api/v1/queries/")
    told = {one["name"]: one["foreign_unknown_because"] for one in answer.json()["results"]}
    assert sorted(told) == ["a0", "a1", "a2", "a3"]
    because = f"is on host {host}." if host else "No driver has reported its logs yet"
    assert all(f"s3a://flights/{name} " in text for name, text in told.items())
    assert all(because in text for text in told.values())


def test_an_author_creates_a_query(as_author: APIClient) -> None:
    answer = as_author.post("/api/v1/queries/", {"name": "ticks", "spec": SPEC}, format="json")
    assert answer.status_code == 201, answer.json()
    assert answer["Location"].endswith("/api/v1/queries/ticks/")
    assert answer["ETag"] == answer.json()["etag"]
    assert answer.json()["phase"] == "STOPPED"
    assert as_author.get(answer["Location"]).json()["application"] == "ticks"


def test_a_definition_with_faults_is_refused_fault_by_fault(as_author: APIClient) -> None:
    spec = {**SPEC, "trigger": {"kind": "processing_time", "interval": "5 parsecs"}, "sql": ""}
    answer = as_author.post("/api/v1/queries/", {"name": "a b", "spec": spec}, format="json")
    assert answer.status_code == 422
    assert answer["Content-Type"] == "application/problem+json"
    problems = {problem["field"]: problem for problem in answer.json()["problems"]}
    assert {"name", "sql"} <= set(problems)
    assert all(problem["message"] for problem in problems.values())
    assert not Query.objects.exists()


def test_a_second_query_on_the_same_checkpoint_is_refused_by_the_holders_name(
    as_author: APIClient,
) -> None:
    first = as_author.post("/api/v1/queries/", {"name": "ticks", "spec": SPEC}, format="json")
    held = first.json()["checkpoint"]
    for location in (held, held + "/below"):
        answer = as_author.post(
            "/api/v1/queries/",
            {"name": "tocks", "spec": SPEC, "checkpoint": location},
            format="json",
        )
        assert answer.status_code == 422
        (problem,) = answer.json()["problems"]
        assert problem["field"] == "checkpoint"
        assert "ticks" in problem["message"] + problem["way_out"]


def test_an_unknown_field_is_refused(as_author: APIClient) -> None:
    body = {"name": "ticks", "spec": SPEC, "chekpoint": "file:///x"}
    answer = as_author.post("/api/v1/queries/", body, format="json")
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == "chekpoint"


def test_a_stopped_query_is_deleted_and_its_name_is_free(
    as_author: APIClient, stage: Stage
) -> None:
    stage.query("delays")
    assert as_author.delete("/api/v1/queries/delays/").status_code == 204
    assert as_author.get("/api/v1/queries/delays/").status_code == 404
    answer = as_author.post("/api/v1/queries/", {"name": "delays", "spec": SPEC}, format="json")
    assert answer.status_code == 201


def test_a_running_query_is_not_deleted(as_author: APIClient, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    answer = as_author.delete("/api/v1/queries/delays/")
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:headgate:problem:not-allowed"
    assert as_author.get("/api/v1/queries/delays/").json()["phase"] == "RUNNING"


def test_progress_is_listed_newest_first_behind_a_cursor(
    as_viewer: APIClient, stage: Stage
) -> None:
    query = stage.query("delays")
    stage.up("delays")
    run = stage.run("delays")
    for batch in range(5):
        store_batch(batch, query=query.pk, run=run.pk)
    first = as_viewer.get("/api/v1/queries/delays/progress/?limit=3").json()
    assert [row["batch"] for row in first["results"]] == [4, 3, 2]
    assert first["results"][0]["progress"]["batchId"] == 4
    second = as_viewer.get(first["next"]).json()
    assert [row["batch"] for row in second["results"]] == [1, 0]
    assert second["next"] is None


def test_a_reason_is_given_in_words_and_as_a_code(as_viewer: APIClient, stage: Stage) -> None:
    stage.query("delays")
    body = as_viewer.get("/api/v1/queries/delays/").json()
    assert (body["phase_reason"], body["phase_reason_code"]) == ("never started", "NEVER_STARTED")
    assert (body["phase_detail"], body["phase_detail_code"]) == ("", "")
    stage.up("delays")
    stage.fail("delays", NO_SUCH_SOURCE)
    body = as_viewer.get("/api/v1/queries/delays/").json()
    reason = (body["phase_reason"], body["phase_reason_code"])
    assert reason == ("cannot be fixed by a restart", "FAILED_FATAL")
    assert body["phase_detail"].startswith("DATA_SOURCE_NOT_FOUND: ")
    assert body["phase_detail_code"] == "FAILURE"
    run = as_viewer.get("/api/v1/queries/delays/runs/").json()["results"][0]
    assert (run["cause"], run["cause_code"]) == ("start requested", "ASKED_START")


def test_health_is_judged_from_the_batches_of_the_open_run(
    as_viewer: APIClient, stage: Stage
) -> None:
    query = stage.query("delays")
    stage.up("delays")
    run = stage.run("delays")
    now = datetime.now(UTC)
    Run.objects.filter(pk=run.pk).update(proven_at=now - timedelta(minutes=5))
    for batch in range(5):  # each takes 9 s of the trigger's 5 s, and no more is read than comes in
        at = now - timedelta(seconds=9 * (6 - batch))
        store_batch(
            batch, query=query.pk, run=run.pk, at=at, num_input_rows=900, batch_duration_ms=9000
        )
    health = as_viewer.get("/api/v1/queries/delays/").json()["health"]
    assert health["verdict"] == "LAGGING"
    assert "9 s" in health["reason"]
    note_verdicts(now=now)
    assert names(as_viewer.get("/api/v1/queries/?health=LAGGING")) == ["delays"]
    assert names(as_viewer.get("/api/v1/queries/?health=IDLE")) == []


def test_a_silent_query_whose_checkpoint_goes_on_is_blind_not_stalled(
    as_viewer: APIClient, stage: Stage, tmp_path: Path
) -> None:
    query = stage.query("delays")
    stage.up("delays")
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    Run.objects.filter(query=query).update(proven_at=long_ago)
    Checkpoint.objects.filter(query=query).update(location=tmp_path.as_uri())
    url = "/api/v1/queries/delays/"
    assert as_viewer.get(url).json()["health"]["verdict"] == "STALLED"
    (tmp_path / "commits").mkdir()
    assert as_viewer.get(url).json()["health"]["verdict"] == "NO_TELEMETRY"


def test_executors_of_a_driver_are_in_its_body(as_viewer: APIClient, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    seen = ExecutorSeen("0", "10.0.0.1:7000", 2, True, "2026-03-01T12:00:00+00:00")
    Driver.objects.update(executors=[asdict(seen)])
    [one] = as_viewer.get("/api/v1/applications/delays/").json()["driver"]["executors"]
    assert (one["id"], one["address"], one["cores"], one["active"]) == (
        "0",
        "10.0.0.1:7000",
        2,
        True,
    )
    assert (one["removed_at"], one["reason"]) == (None, "")


def test_the_takeover_of_a_checkpoint_is_confirmed_by_an_author_and_starts_the_query(
    as_author: APIClient, as_operator: APIClient, stage: Stage
) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.ready("delays")
    stage.launcher.refuse(stage.run("delays").pk, "foreign")
    stage.look()
    assert stage.phase("delays") == "FAILED"
    url = "/api/v1/queries/delays/takeover/"
    assert as_operator.post(url).status_code == 403
    answer = as_author.post(url)
    assert (answer.status_code, answer.json()["verb"]) == (202, "start")
    assert Checkpoint.objects.get().takeover_at is not None
    assert stage.row("delays").desired == "RUNNING"
