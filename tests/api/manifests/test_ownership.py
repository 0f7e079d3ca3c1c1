"""Objects belong to the owner whose files they come from: drift, release, prune, export."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from queries.domain.states import Desired, Phase
from queries.models.alerts import Channel
from queries.models.applications import Application
from queries.models.definitions import Managed, Query
from queries.models.history import Operation
from tests.api.manifests.conftest import Send, application, body, outcomes, query

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
SOURCE = {"repository": "git@example.org:data/queries", "commit": "c" * 40}


def plan_of(answer: Any, name: str) -> Any:
    """Return what an answer says of one object."""
    return next(one for one in answer["objects"] if one["name"] == name)


def test_another_owner_is_refused_and_told_whose_it_is(send: Send) -> None:
    send(query("delays"), source=SOURCE)
    answer = send(query("delays"), owner="other", status=422)
    [problem] = plan_of(answer, "delays")["problems"]
    assert "owner repo" in problem["message"]
    assert SOURCE["repository"] in problem["message"]
    assert "release" in problem["way_out"]


def test_an_object_that_is_there_gets_an_owner(send: Send, as_author: APIClient) -> None:
    manifest = query("delays")
    sent = {"name": "delays", "spec": manifest["spec"]}
    as_author.post("/api/v1/queries/", sent, format="json")
    answer = send(manifest)
    assert plan_of(answer, "delays")["changes"] == [
        {"field": "owner", "before": None, "after": "repo"}
    ]
    assert plan_of(answer, "delays")["revision"] == 1
    assert Managed.objects.get().query == Query.objects.get()


def test_an_edit_elsewhere_is_drift_on_both_sides(send: Send, as_author: APIClient) -> None:
    send(query("delays"), source=SOURCE)
    owner = "/api/v1/queries/delays/owner/"
    assert as_author.get(owner).json()["drift"] is None
    edit = {"spec": {"description": "by hand"}}
    as_author.patch("/api/v1/queries/delays/", edit, format="json")
    drift = as_author.get(owner).json()["drift"]
    assert drift["changes"] == [{"field": "spec.description", "before": "", "after": "by hand"}]
    assert "export" in drift["way_out"]
    planned = plan_of(send(query("delays"), dry_run=True), "delays")
    assert planned["outcome"] == "changed"
    assert planned["drift"]["changes"] == drift["changes"]
    send(query("delays"))
    assert as_author.get(owner).json()["drift"] is None
    assert Query.objects.get().revisions.count() == 3


def test_a_query_that_somebody_stops_against_its_file_has_drifted(
    send: Send, as_author: APIClient
) -> None:
    send(query("delays") | {"desired": "RUNNING"})
    Query.objects.update(desired=Desired.RUNNING)
    owner = "/api/v1/queries/delays/owner/"
    assert as_author.get(owner).json()["drift"] is None
    Query.objects.update(desired=Desired.STOPPED, phase=Phase.STOPPED)
    change = {"field": "desired", "before": "RUNNING", "after": "STOPPED"}
    assert as_author.get(owner).json()["drift"]["changes"] == [change]
    planned = plan_of(send(query("delays") | {"desired": "RUNNING"}, dry_run=True), "delays")
    assert planned["drift"]["changes"] == [change]
    assert planned["changes"] == [{"field": "desired", "before": "STOPPED", "after": "RUNNING"}]
    [file] = as_author.get("/api/v1/export/?query=delays").json()["manifests"]
    assert file["manifest"]["desired"] == "STOPPED", "the edited form takes the file's place"


def test_a_query_that_has_read_all_there_was_has_not_drifted(
    send: Send, as_author: APIClient
) -> None:
    send(query("delays") | {"desired": "RUNNING"})
    Query.objects.update(desired=Desired.STOPPED, phase=Phase.COMPLETED)
    assert as_author.get("/api/v1/queries/delays/owner/").json()["drift"] is None
    planned = plan_of(send(query("delays") | {"desired": "RUNNING"}, dry_run=True), "delays")
    assert (planned["outcome"], planned["drift"]) == ("changed", None), "it is started again"


def test_a_file_that_leaves_desired_to_pages_has_no_drift_in_it(
    send: Send, as_author: APIClient
) -> None:
    send(query("delays"))
    Query.objects.update(desired=Desired.RUNNING)
    assert as_author.get("/api/v1/queries/delays/owner/").json()["drift"] is None
    [file] = as_author.get("/api/v1/export/?query=delays").json()["manifests"]
    assert "desired" not in file["manifest"]


def test_what_is_released_belongs_to_nobody(send: Send, as_author: APIClient) -> None:
    send(query("delays"))
    assert as_author.delete("/api/v1/queries/delays/owner/").status_code == 204
    assert as_author.get("/api/v1/queries/delays/owner/").status_code == 404
    assert outcomes(send(query("delays"), owner="other")) == {"delays": "changed"}


def test_prune_deletes_what_its_owner_no_longer_has(send: Send) -> None:
    send(application("flights"), query("delays", application="flights"), query("kept"))
    send(query("anothers"), owner="other")
    answer = send(query("kept"), prune=True, dry_run=True)
    assert outcomes(answer) == {
        "kept": "unchanged",
        "delays": "to-be-pruned",
        "flights": "to-be-pruned",
    }
    assert Query.objects.filter(archived_at=None).count() == 3
    answer = send(query("kept"), prune=True)
    assert outcomes(answer) == {"kept": "unchanged", "delays": "pruned", "flights": "pruned"}
    names = set(Query.objects.filter(archived_at=None).values_list("name", flat=True))
    assert names == {"kept", "anothers"}
    assert Application.objects.get(name="flights").archived_at is not None


def test_without_prune_what_is_missing_stays(send: Send) -> None:
    send(query("delays"), query("kept"))
    assert outcomes(send(query("kept"))) == {"kept": "unchanged"}
    assert Query.objects.filter(archived_at=None).count() == 2


def test_a_running_query_is_pruned_only_where_the_set_says_so(send: Send) -> None:
    send(query("delays"))
    Query.objects.update(desired=Desired.RUNNING, phase=Phase.RUNNING)
    answer = send(prune=True, status=422)
    [problem] = plan_of(answer, "delays")["problems"]
    assert "prune_running" in problem["way_out"]
    answer = send(prune=True, prune_running=True)
    assert outcomes(answer) == {"delays": "to-be-pruned"}
    operation = Operation.objects.get(uuid=answer["operations"][0])
    assert operation.verb == "prune"
    assert Query.objects.get().archived_at is None


def test_an_application_with_anothers_query_is_not_pruned(send: Send) -> None:
    send(application("flights"))
    send(query("delays", application="flights"), owner="other")
    answer = send(prune=True, status=422)
    [problem] = plan_of(answer, "flights")["problems"]
    assert "query delays is in it" in problem["message"]


def test_what_is_exported_is_what_was_applied(send: Send, as_author: APIClient) -> None:
    pools = [{"name": "light", "min_share": 1}]
    send(
        application("flights", memory="2g", pools=pools, labels={"team": "data"}),
        query("delays", application="flights", labels={"tier": "1"}),
        query("alone", spec={"checkpoint": "/elsewhere/alone"}),
    )
    files = as_author.get("/api/v1/export/").json()["manifests"]
    assert [one["path"] for one in files] == ["flights.yaml", "alone.yaml", "delays.yaml"]
    assert files[0]["manifest"]["spec"] == {"memory": "2g", "pools": pools}
    assert files[1]["manifest"]["spec"]["checkpoint"] == "file:///elsewhere/alone"
    manifests = [one["manifest"] for one in files]
    answer = send(*manifests, dry_run=True)
    assert set(outcomes(answer).values()) == {"unchanged"}
    narrowed = as_author.get("/api/v1/export/?application=flights").json()["manifests"]
    assert [one["path"] for one in narrowed] == ["flights.yaml", "delays.yaml"]


def test_a_query_goes_to_another_installation_with_its_own_application(
    send: Send, as_author: APIClient
) -> None:
    spec = query("delays")["spec"]
    sent = {"name": "delays", "spec": spec, "application_spec": {"memory": "3g"}}
    assert as_author.post("/api/v1/queries/", sent, format="json").status_code == 201
    manifests = [one["manifest"] for one in as_author.get("/api/v1/export/").json()["manifests"]]
    assert [one["kind"] for one in manifests] == ["Application", "Query"]
    assert set(outcomes(send(*manifests, dry_run=True)).values()) == {"changed"}  # its owner
    as_author.delete("/api/v1/queries/delays/")
    assert set(outcomes(send(*manifests)).values()) == {"created"}


RULE = {
    "apiVersion": "headgate/v1",
    "kind": "AlertRule",
    "metadata": {"name": "nights"},
    "spec": {"channels": ["ops", "chat"], "selector": {"severities": ["critical"]}},
}


@pytest.mark.sql("queries.selectors.manifests.export")
def test_alert_rules_are_an_admins_to_apply(send: Send, as_admin: APIClient, admin: User) -> None:
    for name in ("ops", "chat"):
        Channel.objects.create(name=name, kind="mail", settings={}, created_at=NOW)
    sent = body(RULE)
    assert "admin" in send(RULE, status=403)["way_out"]
    first = as_admin.post("/api/v1/apply/", sent, format="json").json()
    assert outcomes(first) == {"nights": "created"}
    again = as_admin.post("/api/v1/apply/", sent, format="json").json()
    assert outcomes(again) == {"nights": "unchanged"}
    [file] = as_admin.get("/api/v1/export/").json()["manifests"]
    assert sorted(file["manifest"]["spec"]["channels"]) == ["chat", "ops"]
    gone = as_admin.post("/api/v1/apply/", body(prune=True), format="json").json()
    assert outcomes(gone) == {"nights": "pruned"}
