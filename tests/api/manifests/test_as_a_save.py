"""A query in a set is validated as one that is saved: the same problems, place and checks."""

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from queries.models.checkpoints import SourceLag
from queries.models.definitions import Query
from queries.models.drivers import Host
from queries.services.kafka import topics
from tests.api.conftest import SPEC
from tests.api.manifests.conftest import Send, application, query
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

CONTINUOUS: dict[str, Any] = {
    "sources": [
        {
            "name": "orders",
            "format": "kafka",
            "options": {"kafka.bootstrap.servers": "broker.example:9092", "subscribe": "orders"},
        }
    ],
    "sql": "SELECT value FROM orders",
    "trigger": {"kind": "continuous", "interval": "5 seconds"},
}


def saved(author: APIClient, name: str, spec: dict[str, Any], host: str = "") -> Query:
    """Save a query over REST."""
    sent = {"name": name, "spec": SPEC | spec} | ({"application": host} if host else {})
    answer = author.post("/api/v1/queries/", sent, format="json")
    assert answer.status_code == 201, answer.json()
    return Query.objects.get(name=name)


def skipped(row: Query) -> list[str]:
    """Return the skipped checks that a query's page names."""
    return [one.text for one in row.revisions.latest("number").skipped]


def test_both_say_that_a_data_root_does_not_exist(
    send: Send, as_author: APIClient, settings: Settings, tmp_path: Path
) -> None:
    settings.ALLOWED_PATHS = [str(tmp_path / "mount")]
    Host.objects.create(name=settings.HEADGATE_HOST, seen_at=timezone.now())
    sink = {"sink": {"format": "parquet", "options": {"path": f"{tmp_path}/mount/out"}}}
    one = saved(as_author, "saved", sink)
    send(query("applied", spec=sink))
    other = Query.objects.get(name="applied")
    assert any("does not exist" in text for text in skipped(one))
    assert skipped(other) == skipped(one)


def test_both_place_a_checkpoint_on_the_host_of_the_application(
    send: Send, as_author: APIClient, stage: Stage
) -> None:
    far = stage.application("far")
    far.host = "elsewhere"
    far.save()
    Host.objects.create(name="elsewhere", home="/srv/headgate", seen_at=timezone.now())
    one = saved(as_author, "saved", {}, host="far")
    send(query("applied", application="far"))
    places = [row.checkpoints.get().location for row in (one, Query.objects.get(name="applied"))]
    assert places[0].startswith("file:///srv/headgate/")
    assert places[1] == places[0].replace("saved", "applied")


def test_both_leave_no_check_to_say_once_a_broker_answered(
    send: Send, as_author: APIClient, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    monkeypatch.setattr(topics, "look", lambda *_, **__: topics.Looked(counts={"orders": 2}))
    one = saved(as_author, "saved", CONTINUOUS, host="kafkas")
    send(query("applied", application="kafkas", spec=CONTINUOUS))
    assert skipped(Query.objects.get(name="applied")) == skipped(one)
    assert not any("not contacted" in text for text in skipped(one))


def test_neither_lets_an_application_shrink_below_what_its_queries_hold(
    send: Send, as_author: APIClient, stage: Stage
) -> None:
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    held = stage.query("holding", "kafkas", **CONTINUOUS)
    for number in range(3):
        SourceLag.objects.create(
            query=held, source="orders", partition=number, latest=9, earliest=0, seen_at=stage.now
        )
    small: dict[str, Any] = {"master": "local[2]", "connectors": ["kafka"]}
    address = "/api/v1/applications/kafkas/"
    tag = {"If-Match": as_author.get(address)["ETag"]}
    answer = as_author.put(address, {"spec": small}, format="json", headers=tag)
    assert answer.status_code == 422, answer.json()
    (one,) = answer.json()["problems"]
    (plan,) = send(application("kafkas", **small), status=422)["objects"]
    (other,) = plan["problems"]
    assert other["field"] == f"spec.{one['field']}" == "spec.master"
    assert other["message"] == one["message"]
    assert "would break query holding" in one["message"]


def test_what_a_set_makes_of_other_queries_counts_when_an_application_shrinks(
    send: Send, stage: Stage
) -> None:
    stage.application("kafkas", master="local[8]", connectors=["kafka"])
    for name in ("first", "second"):
        row = stage.query(name, "kafkas", **CONTINUOUS)
        for number in range(3):
            SourceLag.objects.create(
                query=row, source="orders", partition=number, latest=9, earliest=0,
                seen_at=stage.now,
            )  # fmt: skip
    smaller = application("kafkas", master="local[4]", connectors=["kafka"])
    (plan,) = send(smaller, status=422)["objects"]
    assert "would break query first" in plan["problems"][0]["message"]
    trigger = {"kind": "processing_time", "interval": "5 seconds"}
    second = query("second", application="kafkas", spec=CONTINUOUS | {"trigger": trigger})
    send(smaller, second)
