"""Lag, losses and going on over REST."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from queries.domain.kafka.retention import Retention
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.services.kafka import go_on_after_loss as procedure
from queries.services.kafka import lag
from tests.conftest_brokers import HOUR_MS, Brokers, MakeQuery, brokers, make, said
from tests.scenarios.stage import Stage

__all__ = ["brokers", "make"]


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.BROKER_HOSTS = ["*"]  # brokers of queries that no run has read from yet


@pytest.fixture
def delays(make: MakeQuery, brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> Query:
    query = make("delays")
    written = timezone.now() - timedelta(minutes=10)
    brokers.said["one:9092"] = said({0: (180, 5100), 1: (0, 100)}, written=written)
    lag.look_at_sources(now=timezone.now(), readers=brokers)
    look = partial(lag.look_at_sources, readers=brokers)
    monkeypatch.setattr(procedure, "look_at_sources", look)
    return query


def test_lag_is_told_by_topic_and_partition(as_viewer: APIClient, delays: Query) -> None:
    body = as_viewer.get("/api/v1/queries/delays/lag/").json()
    assert body["total"]["records"] == 4920
    assert body["gaps"] == [
        {"topic": "flights", "partition": 0, "first": 100, "until": 180, "offsets": 80}
    ]
    topic = body["topics"][0]
    assert (topic["topic"], topic["skewed"], topic["retention_ms"]) == ("flights", 0, 3_600_000)
    first, second = topic["partitions"]
    assert (first["committed"], first["behind"]["gone"]) == (100, 80)
    assert first["deleted_at"] is not None
    assert second["deleted_at"] is None
    query = as_viewer.get("/api/v1/queries/delays/").json()
    assert query["lag"]["records"] == 4920
    assert (query["lag"]["unit"], query["lag"]["waiting"]) == ("records", 0)
    assert query["risk"].startswith("Has lost data: 80 offsets")
    assert query["risk_at"] is not None
    assert (query["source_reachable"], query["source_unreachable_since"]) == (True, None)


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ({"retention": Retention(ms=HOUR_MS, compacts=True)}, {}),
        ({"told": False}, {}),
        ({"stable": {0: 5000}}, {"kafka.isolation.level": "read_committed"}),
    ],
)
def test_where_offsets_may_be_no_records_the_unit_says_offsets(
    as_viewer: APIClient,
    make: MakeQuery,
    brokers: Brokers,
    more: dict[str, Any],
    options: dict[str, str],
) -> None:
    make("delays", options=options)
    brokers.said["one:9092"] = said({0: (0, 5100), 1: (0, 100)}, **more)
    lag.look_at_sources(now=timezone.now(), readers=brokers)
    body = as_viewer.get("/api/v1/queries/delays/lag/").json()
    assert (body["total"]["records"], body["total"]["unit"]) == (5000, "offsets")
    assert body["topics"][0]["partitions"][0]["behind"]["unit"] == "offsets"
    assert body["topics"][0]["compacted"] == {"retention": True, "told": None}.get(
        next(iter(more)), False
    )
    assert body["total"]["waiting"] == (100 if "stable" in more else 0)
    line = as_viewer.get("/api/v1/queries/delays/").json()["lag"]
    assert (line["unit"], line["waiting"]) == ("offsets", body["total"]["waiting"])


@pytest.mark.sql("queries.selectors.kafka.lag.losses")
def test_losses_noticed_at_one_moment_are_each_on_one_page(
    as_viewer: APIClient, delays: Query
) -> None:
    now = timezone.now()
    for number in range(3):
        Loss.objects.create(
            query=delays, kind=LossKind.LATE, source=f"dedupe {number}", records=7, noticed_at=now
        )
    first = as_viewer.get("/api/v1/queries/delays/losses/?limit=2").json()
    second = as_viewer.get(f"{first['next']}").json()
    listed = [row["source"] for row in first["results"] + second["results"]]
    assert listed[:3] == ["dedupe 2", "dedupe 1", "dedupe 0"]
    assert len(listed) == len(set(listed))


def test_losses_are_listed_newest_first(as_viewer: APIClient, delays: Query) -> None:
    Loss.objects.create(
        query=delays, kind=LossKind.LATE, source="dedupe 0", records=7, noticed_at=timezone.now()
    )
    body = as_viewer.get("/api/v1/queries/delays/losses/").json()["results"]
    assert [(one["kind"], one["source"], one["records"]) for one in body] == [
        ("late", "dedupe 0", 7)
    ]


def test_going_on_takes_the_count_that_is_gone(as_operator: APIClient, delays: Query) -> None:
    wrong = as_operator.post("/api/v1/queries/delays/go-on/", {"offsets": 3}, format="json")
    assert wrong.status_code == 409
    assert "80 offsets are lost, not 3" in wrong.json()["detail"]
    answer = as_operator.post("/api/v1/queries/delays/go-on/", {"offsets": 80}, format="json")
    assert answer.status_code == 202, answer.json()
    body = answer.json()
    assert (body["verb"], body["arguments"]["offsets"]) == ("go-on", 80)
    assert [step["state"] for step in body["steps"]] == ["TODO"] * 3


def test_a_viewer_cannot_accept_a_loss(as_viewer: APIClient, delays: Query) -> None:
    answer = as_viewer.post("/api/v1/queries/delays/go-on/", {"offsets": 80}, format="json")
    assert answer.status_code == 403


def test_an_entry_of_the_ledger_is_taken_back_with_a_reason(
    as_operator: APIClient, as_viewer: APIClient, delays: Query
) -> None:
    loss = Loss.objects.create(
        query=delays, kind=LossKind.LATE, source="dedupe 0", records=7, noticed_at=timezone.now()
    )
    at = f"/api/v1/queries/delays/losses/{loss.pk}/correct/"
    reason = {"reason": "The counter was wrong."}
    assert as_viewer.post(at, reason, format="json").status_code == 403
    assert as_operator.post(at, {"reason": ""}, format="json").status_code == 422
    other = as_operator.post(f"{at[:-9]}9/correct/", reason, format="json")
    assert (other.status_code, "has no entry" in other.json()["detail"]) == (404, True)
    body = as_operator.post(at, reason, format="json").json()
    assert (body["kind"], body["corrects"], body["records"]) == ("corrected", loss.pk, 7)
    assert (body["note"], body["noted_by"]) == ("The counter was wrong.", "otto")
    listed = as_viewer.get("/api/v1/queries/delays/losses/").json()["results"]
    assert [(one["kind"], one["corrects"]) for one in listed] == [
        ("corrected", loss.pk),
        ("late", None),
    ]
    again = as_operator.post(at, reason, format="json")
    assert (again.status_code, "already corrected" in again.json()["detail"]) == (409, True)


def test_what_a_run_may_have_fetched_is_not_called_lost(
    as_viewer: APIClient, stage: Stage, delays: Query
) -> None:
    assert as_viewer.get("/api/v1/queries/delays/lag/").json()["certain"]
    stage.up("delays")
    assert not as_viewer.get("/api/v1/queries/delays/lag/").json()["certain"]


def test_lag_is_not_called_current_once_its_query_has_ended_or_nobody_has_looked(
    as_viewer: APIClient,
    client: Client,
    viewer: User,
    stage: Stage,
    delays: Query,
    brokers: Brokers,
) -> None:
    client.force_login(viewer)
    stage.up("delays")
    lag.look_at_sources(now=timezone.now(), readers=brokers)
    shown = as_viewer.get("/api/v1/queries/delays/").json()
    assert shown["lag"]["current"]
    assert shown["lag"]["seen_at"] == shown["source_seen_at"]

    def look() -> tuple[bool, str]:
        return (
            as_viewer.get("/api/v1/queries/delays/").json()["lag"]["current"],
            client.get("/queries/").content.decode(),
        )

    row = "<small><time"
    current, page = look()
    assert (current, row in page) == (True, False)
    Run.objects.filter(query=delays).update(ended_at=timezone.now())
    current, page = look()
    assert (current, row in page) == (False, True)
    lag.look_at_sources(now=timezone.now(), readers=brokers)
    assert look()[0]
    SourceLag.objects.update(seen_at=timezone.now() - timedelta(seconds=31))
    assert not look()[0]
