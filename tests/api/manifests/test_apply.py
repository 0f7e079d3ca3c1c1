"""A set of manifests becomes what is there: whole, or not at all."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from queries.models.applications import Application
from queries.models.definitions import Managed, Query, QueryRevision
from queries.models.history import Operation
from tests.api.manifests.conftest import Send, application, body, outcomes, query

pytestmark = pytest.mark.django_db


def test_a_set_makes_applications_pools_and_queries(send: Send, as_author: APIClient) -> None:
    pool = {"name": "light", "min_share": 1}
    answer = send(
        application("flights", memory="2g", pools=[pool], labels={"team": "data"}),
        query("delays", application="flights", spec={"pool": "light"}),
        query("alone"),
    )
    assert outcomes(answer) == dict.fromkeys(("flights", "delays", "alone"), "created")
    shown = as_author.get("/api/v1/queries/delays/").json()
    assert (shown["application"], shown["pool"], shown["revision"]) == ("flights", "light", 1)
    flights = as_author.get("/api/v1/applications/flights/").json()
    assert (flights["spec"]["memory"], flights["labels"]) == ("2g", {"team": "data"})
    assert [one["name"] for one in flights["pools"]] == ["light"]
    own = as_author.get("/api/v1/applications/alone/").json()
    assert own["own"] is True
    assert Application.objects.get(name="alone").target_revision is not None


def test_the_same_set_again_changes_nothing(send: Send) -> None:
    manifests = application("flights"), query("delays", application="flights")
    send(*manifests)
    answer = send(*manifests)
    assert outcomes(answer) == {"flights": "unchanged", "delays": "unchanged"}
    assert all(one["changes"] == [] for one in answer["objects"])
    assert QueryRevision.objects.count() == 1


def test_a_change_is_told_field_by_field_and_makes_one_revision(send: Send) -> None:
    send(query("delays"), query("other"))
    trigger = {"kind": "processing_time", "interval": "10 seconds"}
    answer = send(query("delays", spec={"trigger": trigger}), query("other"))
    assert outcomes(answer) == {"delays": "changed", "other": "unchanged"}
    [changed] = [one for one in answer["objects"] if one["name"] == "delays"]
    assert changed["changes"] == [
        {"field": "spec.trigger.interval", "before": "5 seconds", "after": "10 seconds"}
    ]
    assert changed["revision"] == 2
    assert Query.objects.get(name="delays").revisions.count() == 2


def test_a_dry_run_says_the_same_and_writes_nothing(send: Send) -> None:
    answer = send(query("delays"), dry_run=True)
    assert (answer["dry_run"], outcomes(answer)) == (True, {"delays": "created"})
    assert not Query.objects.exists()
    assert not Managed.objects.exists()


def test_one_fault_refuses_the_whole_set(send: Send) -> None:
    answer = send(query("fine"), query("bad", spec={"sql": ""}), status=422)
    assert outcomes(answer)["bad"] == "refused"
    [problem] = next(one for one in answer["objects"] if one["name"] == "bad")["problems"]
    assert problem["field"] == "spec.sql"
    assert problem["way_out"]
    assert not Query.objects.exists()


def test_labels_and_pools_change_without_a_revision(send: Send) -> None:
    pools = [{"name": "light"}, {"name": "heavy"}]
    send(application("flights", pools=pools), query("delays", application="flights"))
    answer = send(
        application("flights", pools=[{"name": "light", "weight": 2}], labels={"team": "a"}),
        query("delays", application="flights", labels={"tier": "1"}),
    )
    fields = {one["name"]: [c["field"] for c in one["changes"]] for one in answer["objects"]}
    assert fields == {
        "flights": ["metadata.labels.team", "spec.pools.heavy", "spec.pools.light.weight"],
        "delays": ["metadata.labels.tier"],
    }
    row = Application.objects.get(name="flights")
    assert {pool.name: pool.weight for pool in row.pools.all()} == {"light": 2}
    assert row.revisions.count() == 1
    assert Query.objects.get(name="delays").labels == {"tier": "1"}


def test_a_desired_state_follows_in_an_operation(send: Send) -> None:
    answer = send(query("delays", desired="RUNNING"), query("idle"))
    [uuid] = answer["operations"]
    operation = Operation.objects.get(uuid=uuid)
    assert operation.verb == "start-many"
    assert [line["name"] for line in operation.result["queries"]] == ["delays"]


def test_values_are_put_in_before_validation(send: Send, as_author: APIClient) -> None:
    spec = {
        "description": "for ${values.ENV}",
        "trigger": {"kind": "processing_time", "interval": "${values.EVERY}"},
    }
    send(query("delays", spec=spec), values={"ENV": "test", "EVERY": "7 seconds"})
    shown = as_author.get("/api/v1/queries/delays/").json()["spec"]
    assert (shown["description"], shown["trigger"]["interval"]) == ("for test", "7 seconds")


def test_a_text_holds_several_manifests(as_author: APIClient) -> None:
    text = """
apiVersion: headgate/v1
kind: Application
metadata: {name: flights}
---
apiVersion: headgate/v1
kind: Query
metadata: {name: delays, application: flights}
spec:
  kind: sql
  sources: [{name: ticks, format: rate, options: {rowsPerSecond: 5}}]
  sql: SELECT * FROM ticks
  sink: {format: noop}
"""
    sent: dict[str, Any] = {"owner": "repo", "manifests": [{"path": "all.yaml", "text": text}]}
    answer = as_author.post("/api/v1/apply/", sent, format="json")
    assert answer.status_code == 200, answer.json()
    assert outcomes(answer.json()) == {"flights": "created", "delays": "created"}


def test_a_viewer_may_not_apply(as_viewer: APIClient) -> None:
    answer = as_viewer.post("/api/v1/apply/", body(query("delays")), format="json")
    assert answer.status_code == 403
