"""Deploys and rollbacks over REST."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from tests.scenarios.deploys.way import NOTE, Way
from tests.scenarios.stage import DIVIDE, Stage

pytestmark = pytest.mark.django_db
DEPLOYS = "/api/v1/deploys/"


@pytest.fixture
def way(stage: Stage) -> Way:
    stage.query("delays")
    stage.up("delays")
    return Way(stage)


@pytest.fixture
def ci(client: Client, author: Any) -> Client:
    client.force_login(author)
    return client


def _body(way: Way, **how: Any) -> dict[str, Any]:
    files = [{"path": "delays.yaml", "manifest": way.manifest("delays", conf={NOTE: "new"})}]
    source = {"repository": "https://git/flights", "commit": "a" * 40}
    return {"apply": {"owner": "flights", "source": source, "manifests": files}, **how}


def _post(ci: Client, address: str, body: Any) -> Any:
    return ci.post(address, body, content_type="application/json")


def test_a_deploy_is_followed_to_its_report(ci: Client, way: Way) -> None:
    answer = _post(ci, DEPLOYS, _body(way))
    assert answer.status_code == 202
    asked = answer.json()
    assert answer["Location"] == f"{DEPLOYS}{asked['id']}/" == asked["links"]["self"]
    assert (asked["state"], asked["waves"][0]["state"]) == ("PENDING", "PENDING")
    assert asked["diff"][0]["changes"][-1]["field"] == f"spec.conf.{NOTE}"
    way.row = way.row or _row(asked["id"])
    way.work()
    running = ci.get(asked["links"]["self"]).json()
    [query] = running["waves"][0]["queries"]
    assert running["state"] == "RUNNING"
    assert query["reason"].startswith("It has not committed a batch or had an idle trigger yet.")
    assert query["reason_code"] == "AWAITS_COMMIT"
    way.came_up("delays")
    done = ci.get(asked["links"]["self"]).json()
    [query] = done["waves"][0]["queries"]
    assert (done["state"], done["source"]["commit"]) == ("SUCCEEDED", "a" * 40)
    assert (query["from_revision"], query["to_revision"], query["first_batch"]) == (1, 2, 10)
    assert query["evidence"]["batches"] == 1
    assert "cancel" not in done["links"]
    [line] = ci.get(f"{DEPLOYS}?query=delays&state=SUCCEEDED").json()["results"]
    assert line["id"] == asked["id"]
    assert ci.get(f"{DEPLOYS}?owner=others").json()["results"] == []


def test_the_report_has_the_times_of_each_change_and_wave(
    ci: Client, way: Way, stage: Stage
) -> None:
    asked = _post(ci, DEPLOYS, _body(way)).json()
    assert (asked["waves"][0]["began_at"], asked["waves"][0]["ended_at"]) == (None, None)
    way.row = _row(asked["id"])
    way.work()
    [wave] = ci.get(asked["links"]["self"]).json()["waves"]
    [query] = wave["queries"]
    assert (wave["ended_at"], query["proven_at"]) == (None, None)
    assert wave["began_at"] == query["restarted_at"]
    stage.now += timedelta(seconds=70)
    way.came_up("delays")
    [wave] = ci.get(asked["links"]["self"]).json()["waves"]
    [query] = wave["queries"]
    assert wave["began_at"] == query["restarted_at"]
    assert wave["began_at"] < query["proven_at"] <= wave["ended_at"]
    assert query["judged_by"] == "Evaluated from its own runs since the restart."


def _row(uuid: str) -> Any:
    from queries.models.deploys import Deploy

    return Deploy.objects.get(uuid=uuid)


def test_one_that_stops_offers_the_rollback(ci: Client, way: Way, stage: Stage) -> None:
    asked = _post(ci, DEPLOYS, _body(way, on_failure="stop")).json()
    way.row = _row(asked["id"])
    way.work()
    way.leave("delays", "delays")
    stage.ready("delays")
    stage.fail("delays", DIVIDE)
    way.work()
    failed = ci.get(asked["links"]["self"]).json()
    assert (failed["state"], failed["reason_code"]) == ("FAILED", "QUERY_FAILED")
    [offer] = failed["offers"]
    assert (offer["act"], offer["query"], offer["revision"]) == ("rollback", "delays", 1)
    address = f"/api/v1/queries/{offer['query']}/rollback/"
    answer = _post(ci, address, {"revision": offer["revision"]})
    assert answer.status_code == 202
    assert answer.json()["query"] == "delays"


def test_one_is_cancelled(ci: Client, way: Way) -> None:
    asked = _post(ci, DEPLOYS, _body(way, preflight=True)).json()
    answer = _post(ci, asked["links"]["cancel"], {})
    assert answer.status_code == 200
    way.row = _row(asked["id"])
    assert way.work().state == "CANCELLED"
    assert _post(ci, asked["links"]["cancel"], {}).status_code == 409


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "apply"),
        ({"apply": {"owner": "", "manifests": []}}, "apply.owner"),
        ({"apply": {"owner": "o", "manifests": []}, "waves": {"size": -1}}, "waves.size"),
        ({"apply": {"owner": "o", "manifests": []}, "good": {"batches": "x"}}, "good.batches"),
        ({"apply": []}, "apply"),
    ],
)
def test_a_bad_body_names_its_field(ci: Client, body: Any, field: str) -> None:
    answer = _post(ci, DEPLOYS, body)
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == field


def test_a_faulty_manifest_names_its_file(ci: Client, way: Way) -> None:
    body = _body(way)
    body["apply"]["manifests"][0]["manifest"]["spec"]["pool"] = "none"
    answer = _post(ci, DEPLOYS, body)
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == "delays.yaml: spec.pool"


@pytest.mark.parametrize(("revision", "status"), [(1, 409), (9, 404), ("x", 422), (0, 422)])
def test_a_rollback_that_cannot_be_is_answered_at_once(
    ci: Client, way: Way, revision: Any, status: int
) -> None:
    answer = _post(ci, "/api/v1/queries/delays/rollback/", {"revision": revision})
    assert answer.status_code == status
