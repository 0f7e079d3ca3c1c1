"""Runs and their logs, failures and their groups, checkpoints, applications, pools, tokens."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from headgate_ground.masking import MASK
from queries.domain.definitions.spec import ProcessingTime
from queries.models.history import Failure
from queries.runtime.build import overridden
from queries.runtime.code.stream_writers import WriterSettings
from tests.api.conftest import SPEC
from tests.listeners.rows import store_batch
from tests.scenarios.stage import DIVIDE, Stage
from tests.services.secrets.binding import bind


def test_a_run_names_its_neighbours_and_adds_up_its_batches(
    as_viewer: APIClient, stage: Stage
) -> None:
    query = stage.query("delays")
    stage.up("delays")
    first = stage.run("delays")
    stage.fail("delays", DIVIDE, batch=3)
    stage.wait(30)
    second = stage.last_run("delays")
    assert second.pk != first.pk
    for batch in range(3):
        store_batch(batch, query=query.pk, run=first.pk)
    body = as_viewer.get(f"/api/v1/runs/{first.pk}/").json()
    assert (body["previous"], body["next"]) == (None, second.pk)
    assert body["outcome"] == "FAILED"
    assert (body["batches"]["batches"], body["batches"]["rows"]) == (3, 30)
    assert body["failures"] == [Failure.objects.get(run=first).pk]
    rows = as_viewer.get("/api/v1/queries/delays/runs/").json()["results"]
    assert [row["id"] for row in rows] == [second.pk, first.pk]


def test_a_run_that_ends_shows_its_parameters_and_the_rows_that_it_wrote(
    as_viewer: APIClient, stage: Stage
) -> None:
    query = stage.query("backfill", trigger={"kind": "available_now"}, params={"low": 1})
    stage.up("backfill")
    run = stage.run("backfill")
    address = f"/api/v1/runs/{run.pk}/"
    for batch in range(3):
        body = {"batchId": batch, "sink": {"description": "kafka", "numOutputRows": 4}}
        store_batch(batch, query=query.pk, run=run.pk, body=body)
    found = as_viewer.get(address).json()
    assert (found["params"], found["batches"]["rows_written"]) == ({"low": 1}, 12)
    # A file sink does not count them.
    body = {"batchId": 3, "sink": {"description": "FileSink[/out]", "numOutputRows": -1}}
    store_batch(3, query=query.pk, run=run.pk, body=body)
    assert as_viewer.get(address).json()["batches"]["rows_written"] is None


def test_a_run_says_what_its_code_sets_and_does_not_get(as_viewer: APIClient, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    run = stage.run("delays")
    trigger = ProcessingTime(kind="processing_time", interval="5 seconds")
    said = WriterSettings(name="flights", checkpoint="/tmp/mine?password=hunter2")
    sentences = overridden(said, "delays", "file:///checkpoints/delays", trigger)
    stage.launcher.warns(run.pk, *sentences)
    stage.look("delays")
    address = f"/api/v1/runs/{run.pk}/"
    shown = as_viewer.get(address).json()["warnings"]
    assert shown[0] == (
        "The code sets queryName flights; delays is used instead, the query's name."
    )
    assert "/tmp/mine" in shown[1]
    assert "hunter2" not in shown[1]
    [row] = as_viewer.get("/api/v1/queries/delays/runs/").json()["results"]
    assert row["warnings"] == shown
    stage.launcher.end_run(run.pk)
    stage.look("delays")
    assert as_viewer.get(address).json()["warnings"] == shown, "the ended run keeps it"


def test_a_runs_log_is_text_without_secrets(
    as_viewer: APIClient,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    tmp_path: Path,
) -> None:
    settings.SECRETS_DIR = tmp_path
    (tmp_path / "vault").write_text("tr0ub4dor\n")
    bind("file:vault", "flights")
    stage.application("flights", env={"VAULT": "file:vault"})
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    monkeypatch.setattr("queries.api.supervision.history.launcher", lambda: stage.launcher)
    run = stage.run("delays")
    text = "first line\nconnected with tr0ub4dor\npassword=hunter2\nbatch 7 done"
    stage.launcher.log("flights", run.driver.epoch, text)
    answer = as_viewer.get(f"/api/v1/runs/{run.pk}/log/?tail=3")
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    shown = answer.content.decode()
    assert shown.strip() == f"connected with {MASK}\npassword={MASK}\nbatch 7 done"


@pytest.mark.parametrize("tail", ["0", "5001", "all"])
def test_a_tail_out_of_bounds_is_a_problem(as_viewer: APIClient, stage: Stage, tail: str) -> None:
    stage.query("delays")
    stage.up("delays")
    answer = as_viewer.get(f"/api/v1/runs/{stage.run('delays').pk}/log/?tail={tail}")
    assert answer.status_code == 422
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["problems"][0]["field"] == "tail"


def test_a_failure_says_why_and_what_changed_since_the_last_good_run(
    as_viewer: APIClient, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    good = stage.run("delays")
    stage.stop("delays")
    stage.launcher.end_run(good.pk)
    stage.look()
    stage.launcher.leave("delays")
    stage.look()
    spec = {**good.revision.spec, "sql": "SELECT a / b FROM flights"}
    good.query.revisions.create(
        number=2, kind="sql", spec=spec, author="aude", created_at=stage.now
    )
    stage.wait(5)
    stage.start("delays")
    stage.ready("delays")
    failed = stage.run("delays")
    stage.fail("delays", DIVIDE, batch=7)
    (row,) = as_viewer.get("/api/v1/queries/delays/failures/").json()["results"]
    assert (row["error_class"], row["batch"], row["run"]) == ("DIVIDE_BY_ZERO", 7, failed.pk)
    body = as_viewer.get(row["links"]["self"]).json()
    assert "Division by zero" in body["root_cause"]
    assert body["last_good_run"] == good.pk
    change = {change["what"]: change for change in body["changes"]}["revision"]
    assert (change["before"], change["after"]) == ("r1", "r2")
    assert change["spec_after"]["sql"] == "SELECT a / b FROM flights"
    assert "olga" in {act["actor"] for act in body["acts"]}


def test_a_group_is_resolved_and_reopened(as_operator: APIClient, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", DIVIDE, batch=3)
    (group,) = as_operator.get("/api/v1/failure-groups/?status=OPEN").json()["results"]
    assert (group["query"], group["count"]) == ("delays", 1)
    resolved = as_operator.post(group["links"]["resolve"]).json()
    assert (resolved["status"], resolved["resolved_by"]) == ("RESOLVED", "otto")
    assert as_operator.get("/api/v1/failure-groups/?status=OPEN").json()["results"] == []
    assert as_operator.post(group["links"]["reopen"]).json()["status"] == "OPEN"
    (failure,) = as_operator.get(group["links"]["failures"]).json()["results"]
    assert failure["group"] == group["id"]


def test_groups_are_listed_last_seen_first_behind_a_cursor(
    as_viewer: APIClient, stage: Stage
) -> None:
    for name in ("a", "b", "c"):
        stage.query(name)
        stage.up(name)
        stage.fail(name, DIVIDE, batch=1)
        stage.wait(1)
    first = as_viewer.get("/api/v1/failure-groups/?limit=2").json()
    rest = as_viewer.get(first["next"]).json()
    assert [row["query"] for row in first["results"] + rest["results"]] == ["c", "b", "a"]
    assert rest["next"] is None


def test_checkpoints_name_their_holder(as_author: APIClient, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.query("alarms")
    as_author.delete("/api/v1/queries/alarms/")
    (held,) = as_author.get("/api/v1/checkpoints/?held=true").json()["results"]
    assert (held["location"], held["query"]) == ("file:///checkpoints/delays", "delays")
    assert held["last_run"] == stage.run("delays").pk
    (retired,) = as_author.get("/api/v1/checkpoints/?held=false").json()["results"]
    assert (retired["query"], retired["last_run"]) == ("alarms", None)


def test_an_application_is_created_changed_and_deleted(as_author: APIClient) -> None:
    created = as_author.post("/api/v1/applications/", {"name": "flights"}, format="json")
    assert created.status_code == 201, created.json()
    url = "/api/v1/applications/flights/"
    spec = {**created.json()["spec"], "memory": "2g"}
    assert as_author.put(url, {"spec": spec}, format="json").status_code == 428
    match = {"If-Match": created["ETag"]}
    put = as_author.put(url, {"spec": spec}, format="json", headers=match)
    assert (put.json()["revision"], put.json()["spec"]["memory"]) == (2, "2g")
    patched = as_author.patch(url, {"spec": {"memory": "3g"}}, format="json")
    assert patched.json()["spec"] == {**spec, "memory": "3g"}
    assert as_author.delete(url).status_code == 204
    assert as_author.get(url).status_code == 404


def test_an_application_with_queries_is_not_deleted(as_author: APIClient, stage: Stage) -> None:
    stage.application("flights")
    stage.query("delays", "flights")
    answer = as_author.delete("/api/v1/applications/flights/")
    assert answer.status_code == 409
    assert "delays" in answer.json()["detail"] + answer.json()["way_out"]


def test_a_pool_says_what_it_holds_and_when_it_takes_effect(
    as_author: APIClient, stage: Stage
) -> None:
    stage.application("flights")
    stage.query("delays", "flights", pool="heavy")
    pools = "/api/v1/applications/flights/pools/"
    created = as_author.post(pools, {"name": "heavy", "weight": 3}, format="json")
    assert created.status_code == 201, created.json()
    assert created.json() == {
        "name": "heavy",
        "weight": 3,
        "min_share": 0,
        "mode": "FAIR",
        "queries": ["delays"],
    }
    assert as_author.post(pools, {"name": "heavy"}, format="json").status_code == 409
    stage.up("delays", "flights")
    body = as_author.get("/api/v1/applications/flights/").json()
    assert (body["driver"]["state"], body["needs_restart"]) == ("LIVE", [])
    as_author.put(f"{pools}heavy/", {"weight": 5}, format="json")
    assert as_author.get("/api/v1/applications/flights/").json()["needs_restart"] == ["pools"]
    body = as_author.get("/api/v1/queries/delays/").json()
    assert body["needs_application_restart"] == ["pools"]
    used = as_author.delete(f"{pools}heavy/")
    assert used.status_code == 409
    assert "delays" in used.json()["detail"]


def test_tokens_are_given_by_admins_and_seen_and_revoked_by_their_owner(
    as_admin: APIClient, as_viewer: APIClient, viewer: User
) -> None:
    sent = {"user": "vera", "name": "nightly", "days": 7}
    assert as_viewer.post("/api/v1/tokens/", sent, format="json").status_code == 403
    given = as_admin.post("/api/v1/tokens/", sent, format="json")
    assert given.status_code == 201, given.json()
    text = given.json()["token"]
    ci = APIClient()
    ci.credentials(HTTP_AUTHORIZATION=f"Token {text}")
    assert ci.get("/api/v1/me/").json() == {
        "user": "vera",
        "role": "viewer",
        "teams": [],
        "may_write_python": False,
    }
    seen = as_viewer.get("/api/v1/tokens/").json()["results"]
    assert {row["name"] for row in seen} == {"nightly", "tests"}
    assert text not in str(seen)
    assert {row["user"] for row in seen} == {"vera"}
    assert as_viewer.delete(given["Location"]).status_code == 204
    assert ci.get("/api/v1/me/").status_code == 401


def test_a_token_of_somebody_else_is_not_there(as_admin: APIClient, as_viewer: APIClient) -> None:
    (mine,) = [
        row for row in as_admin.get("/api/v1/tokens/").json()["results"] if row["user"] == "ada"
    ]
    assert as_viewer.get(f"/api/v1/tokens/{mine['id']}/").status_code == 404
    assert as_viewer.delete(f"/api/v1/tokens/{mine['id']}/").status_code == 404
    assert as_admin.get("/api/v1/me/").json()["role"] == "admin"


def test_a_query_in_a_shared_application_names_it(as_author: APIClient, stage: Stage) -> None:
    stage.application("flights")
    sent = {"name": "ticks", "spec": SPEC, "application": "flights"}
    created = as_author.post("/api/v1/queries/", sent, format="json")
    assert created.status_code == 201, created.json()
    assert as_author.get("/api/v1/applications/flights/").json()["queries"] == ["ticks"]
