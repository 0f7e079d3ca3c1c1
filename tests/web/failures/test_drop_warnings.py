"""Dropped events are said on every page: how many, when, what came back."""

from dataclasses import asdict
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from headgate_ground.wire import HeartbeatBody as Beat
from listeners.models import DroppedEvents, Gap, Heartbeat, Progress


def _beat(mode: str) -> None:
    now = timezone.now()
    body = asdict(Beat(mode, None, None, (), 1, 0, 0, 0, 0))
    Heartbeat.objects.create(driver=7, epoch=7, seq=1, at=now, received_at=now, body=body)


def _drop(queue: str, count: int) -> None:
    now = timezone.now()
    DroppedEvents.objects.create(
        driver=7, queue=queue, count=count, total=count, since=now - timedelta(minutes=2), until=now
    )


def _page(client: Client, viewer: User) -> str:
    client.force_login(viewer)
    return client.get("/queries/").content.decode()


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("private", "Headgate did not."),
        ("fallback", "Headgate uses this queue too."),
    ],
)
def test_the_banner_says_what_was_dropped_and_whom_it_cost(
    client: Client, viewer: User, mode: str, says: str
) -> None:
    _beat(mode)
    _drop("streams", 1204)
    page = _page(client, viewer)
    assert "1,204 events dropped" in page
    assert says in page
    assert "No batches are missing." in page


@pytest.mark.sql("listeners.selectors.holes_since")
def test_the_banner_counts_what_went_missing_and_what_came_back(
    client: Client, viewer: User
) -> None:
    _beat("fallback")
    _drop("streams", 12)
    now = timezone.now()
    for batch in (3, 4):
        Progress.objects.create(
            driver=7,
            epoch=7,
            seq=batch,
            query=1,
            run=1,
            spark_run_id="r",
            batch=batch,
            at=now,
            received_at=now,
            repaired=True,
        )
    Gap.objects.create(
        kind="batch", driver=7, query=1, run=1, first=9, last=9, missing=1, noticed_at=now
    )
    assert "3 batches missing, 2 of them repaired." in _page(client, viewer)
