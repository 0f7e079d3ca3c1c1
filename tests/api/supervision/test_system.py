"""The system's own health over REST: every part, what is behind, what is passed over."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from listeners.loops.backlogs import LEDGER, quarantine
from listeners.models import Cursor, Heartbeat
from queries.services.system import health as system

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _look_anew() -> Any:
    system.forget()
    yield
    system.forget()


def parts(client: APIClient) -> tuple[dict[str, Any], dict[str, Any]]:
    answer = client.get("/api/v1/system/")
    assert answer.status_code == 200, answer.content
    body = answer.json()
    return body, {part["name"]: part for part in body["parts"]}


def test_it_says_how_far_the_bulk_work_is_behind(as_viewer: APIClient) -> None:
    since = datetime.now(UTC) - timedelta(minutes=14, seconds=30)
    Cursor.objects.create(name=LEDGER, left_rows=52_000, left_since=since, ran_at=NOW)
    body, found = parts(as_viewer)
    assert found["backlog"]["state"] == "problem"
    assert found["backlog"]["sentence"] == (
        "Loss ledger: 52,000 batches behind, the oldest by 14 min. It is processed in slices."
    )
    told = {one["name"]: one for one in body["backlogs"]}
    assert list(told) == ["ledger", "gaps", "retention"]
    assert told["ledger"]["rows"] == 52_000
    assert told["gaps"] == {"name": "gaps", "rows": 0, "since": None, "ran_at": None}


def test_it_says_that_bulk_work_has_not_ended_for_long(as_viewer: APIClient) -> None:
    Cursor.objects.create(name=LEDGER, ran_at=NOW - timedelta(minutes=20))
    _, found = parts(as_viewer)
    assert found["backlog"]["sentence"].startswith("No run of loss ledger has finished since ")


def test_it_says_what_is_passed_over_on_the_server_and_in_drivers(as_viewer: APIClient) -> None:
    _, found = parts(as_viewer)
    assert found["loops"]["sentence"] == "Nothing is skipped."
    quarantine("ledger", "batch 4", ValueError("password=hunter2"), log=logging.getLogger("x"))
    told = {"about": "status.json", "cause": "OSError: No space left on device", "times": 9}
    Heartbeat.objects.create(
        driver=3, epoch=7, seq=1, at=NOW, received_at=datetime.now(UTC), body={"troubles": [told]}
    )
    system.forget()
    sentences = parts(as_viewer)[1]["loops"]["sentence"]
    assert "hunter2" not in sentences
    assert "And 1 more." in sentences
    assert sentences.startswith("Driver 3: status.json fails, 9 times since ")


def test_the_banner_of_every_page_says_so_too(as_viewer: APIClient, stage: Any) -> None:
    from queries.views.console.shell import banner

    Cursor.objects.create(name=LEDGER, left_rows=7, left_since=NOW - timedelta(hours=3), ran_at=NOW)
    items = [item for line in banner(NOW) for item in line.items]
    assert (
        "Backlog",
        "Loss ledger: 7 batches behind, the oldest by 3 h. It is processed in slices.",
    ) in items
