"""A row waits once, however often it changes, and no lost message keeps it waiting."""

from typing import Any

import pytest
import redis

from controlplane import nudge
from controlplane.celery import app
from queries import tasks
from tests.conftest_redis import redis_client, valkey

__all__ = ["redis_client", "valkey"]

pytestmark = pytest.mark.redis
RECONCILE = "queries.tasks.reconcile_application"
QUEUE = "headgate.here"


class Queue:
    """What waits in a queue of Celery, and what a worker does with it."""

    def __init__(self, client: redis.Redis, key: str) -> None:
        self.client, self.key = client, key
        self.done: list[int] = []

    def nudge(self, *rows: int) -> None:
        for row in rows:
            nudge._send(RECONCILE, lambda: QUEUE, row)

    def send(self, name: str, args: list[Any], queue: str, **_: Any) -> None:
        assert (name, args, queue) == ("queries.tasks.take_nudges", [QUEUE], QUEUE)
        self.client.rpush(self.key, "a message")

    @property
    def messages(self) -> int:
        found: Any = self.client.llen(self.key)
        return int(found)

    def lose(self) -> None:
        """Lose all messages, as with a worker that is killed after it has taken them."""
        self.client.delete(self.key)

    def work(self) -> list[int]:
        """Take a message, if there is one; return the rows that were served."""
        self.done.clear()
        if self.client.lpop(self.key):
            tasks.take_nudges(QUEUE)
        return self.done.copy()


@pytest.fixture
def queue(redis_client: redis.Redis, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Queue:
    prefix = settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"]
    found = Queue(redis_client, f"{prefix}{QUEUE}")
    monkeypatch.setattr(app, "send_task", found.send)
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)
    monkeypatch.setattr(app.tasks[RECONCILE], "run", found.done.append)
    return found


def test_a_row_that_waits_adds_no_second_message(queue: Queue) -> None:
    for _ in range(5):
        queue.nudge(7, 8)
    assert queue.messages == 2
    assert queue.work() == [7, 8]


def test_a_row_that_changes_while_it_is_served_waits_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(row: int) -> None:
        if not queue.done:
            queue.nudge(row)
        queue.done.append(row)

    monkeypatch.setattr(app.tasks[RECONCILE], "run", serve)
    queue.nudge(7)
    assert queue.work() == [7, 7]


@pytest.mark.guarantee("G-HOST-3")
def test_the_next_nudge_replaces_messages_that_a_killed_worker_took(queue: Queue) -> None:
    queue.nudge(7, 8)
    queue.lose()
    queue.nudge(7)  # it waits already, and yet somebody must be woken
    assert queue.messages == 1
    assert queue.work() == [7, 8]


def test_a_message_that_finds_nothing_does_nothing(queue: Queue) -> None:
    queue.nudge(7, 8)
    assert queue.work() == [7, 8]
    assert queue.messages == 1
    assert queue.work() == []


def test_an_error_keeps_no_other_row_from_being_served(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def serve(row: int) -> None:
        if row == 7:
            raise KeyError("a broken row")
        queue.done.append(row)

    monkeypatch.setattr(app.tasks[RECONCILE], "run", serve)
    queue.nudge(7, 8)
    assert queue.work() == [8]
    assert "reconcile_application(7,) failed" in caplog.text


def test_a_worker_that_stops_leaves_the_other_rows(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "stopping", lambda: True)
    queue.nudge(7, 8)
    assert queue.work() == [7]
    monkeypatch.undo()


def test_without_redis_a_nudge_is_only_logged(
    settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(nudge, "_put", away)
    nudge.read_sink_soon(7)
    assert "nudge queries.tasks.read_sink(7,) not sent: away" in caplog.text
