"""The watcher tells of Headgate's own trouble, by itself, and over its own end."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from django.db import DatabaseError

from queries.channels.base import Message, SendFailed
from queries.domain.system import Part, ok, problem, unknown
from queries.models.alerts import AlertRule, Channel
from queries.selectors.alerts.own_routes import Route
from queries.services.alerts import watcher as module
from queries.services.alerts.watcher import Watcher
from tests.services.secrets.binding import bind

pytestmark = pytest.mark.django_db

START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
SENT = tuple[str, str, str, bool]


class Web(BaseHTTPRequestHandler):
    """A web process that lives."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


class Watched:
    """A watcher over parts that the story sets, and what it told."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.now = START
        self.parts: tuple[Part, ...] = (ok("database", "SQLite responds."),)
        self.told: list[SENT] = []
        self.refuses: dict[str, SendFailed] = {}
        monkeypatch.setattr(module, "look", lambda now: self.parts)
        self.begin()

    def begin(self) -> None:
        self.watcher = Watcher(self.path, send=self.send, clock=lambda: self.now)

    def send(self, route: Route, message: Message) -> None:
        if error := self.refuses.get(route.name):
            raise error
        self.told.append((route.name, message.kind, message.step, message.repeat))

    def look(self, seconds: float, *parts: Part) -> None:
        database = ok("database", "SQLite responds.")
        self.parts = parts if any(one.name == "database" for one in parts) else (database, *parts)
        self.now += timedelta(seconds=seconds)
        self.watcher.step()


@pytest.fixture
def web(settings: object) -> Iterator[ThreadingHTTPServer]:
    """A web process that answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    settings.WATCHED_URL = f"http://127.0.0.1:{server.server_port}/healthz"  # type: ignore[attr-defined]
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, web: ThreadingHTTPServer) -> Watched:
    """A watcher with one rule for all and two channels, one of them switched off."""
    channels = [
        Channel.objects.create(
            name=name,
            kind="webhook",
            settings={"url": "file:hook"},
            enabled=name != "off",
            created_at=START,
            created_by="ada",
        )
        for name in ("pager", "off")
    ]
    rule = AlertRule.objects.create(name="all", created_at=START, created_by="ada")
    rule.channels.set(channels)
    return Watched(tmp_path / "watch.json", monkeypatch)


def test_a_worker_that_stays_away_is_told_once_and_its_return_too(watched: Watched) -> None:
    gone = problem("worker", "No worker heartbeat since 03:00:00 UTC.")
    for _ in range(8):
        watched.look(10, gone)
    assert watched.told == [("pager", "worker-down", "opened", False)]
    for _ in range(8):
        watched.look(10, ok("worker", "Sweeps run on here."))
    assert watched.told[1:] == [("pager", "worker-down", "resolved", False)]


def test_it_tells_by_the_last_known_channels_while_the_database_is_away(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.look(0)
    watched.begin()  # it knows them from its file

    def away() -> dict[str, list[Route]]:
        raise DatabaseError("no database")

    monkeypatch.setattr(module, "own_routes", away)
    down = problem("database", "The database is not responding: connection refused")
    for _ in range(8):
        watched.look(10, down, unknown("hosts", "the database is not responding"))
    assert watched.told == [("pager", "database-down", "opened", False)]


def test_a_web_process_that_does_not_answer_is_told(
    watched: Watched, web: ThreadingHTTPServer
) -> None:
    watched.look(0)
    web.shutdown()
    web.server_close()
    for _ in range(8):
        watched.look(10)
    assert watched.told == [("pager", "web-down", "opened", False)]


def test_what_could_not_be_delivered_is_tried_again_and_told_in_order(watched: Watched) -> None:
    watched.refuses["pager"] = SendFailed("It does not answer.")
    for _ in range(12):
        watched.look(10, problem("ticks", "“Send alerts” is late."))
    assert watched.told == []
    del watched.refuses["pager"]
    watched.look(1000, problem("ticks", "“Send alerts” is late."))
    assert watched.told == [("pager", "ticks-late", "opened", False)]


def test_what_no_try_can_deliver_is_given_up(watched: Watched) -> None:
    watched.refuses["pager"] = SendFailed("The key is refused.", lasting=True)
    for _ in range(8):
        watched.look(10, problem("ticks", "“Send alerts” is late."))
    assert json.loads(watched.path.read_text())["waiting"] == []


def test_a_watcher_killed_while_it_sends_tells_once_more_and_marks_it(watched: Watched) -> None:
    class Killed(BaseException):
        """SIGKILL has no handler."""

    def send(route: Route, message: Message) -> None:
        raise Killed

    down = problem("redis", "Redis is not responding.")
    dying = Watcher(watched.path, send=send, clock=lambda: watched.now)
    watched.watcher = dying
    for _ in range(5):
        watched.look(10, down)
    with pytest.raises(Killed):
        watched.look(10, down)
    watched.begin()
    watched.look(10, down)
    assert watched.told == [("pager", "redis-down", "opened", True)]
    watched.begin()
    watched.look(10, down)
    assert len(watched.told) == 1


def test_a_file_that_cannot_be_read_is_begun_again(watched: Watched) -> None:
    watched.path.write_text('{"watched": 7')
    watched.begin()
    watched.look(10)
    assert json.loads(watched.path.read_text())["waiting"] == []
    assert watched.path.stat().st_mode & 0o777 == 0o600


def test_channels_that_deliver_nothing_fill_no_memory(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    watched.refuses["pager"] = SendFailed("It does not answer.")
    for _ in range(3):
        for _ in range(7):
            watched.look(10, problem("ticks", "“Send alerts” is late."))
        for _ in range(8):
            watched.look(10, ok("ticks", "All are on time."))
    assert len(json.loads(watched.path.read_text())["waiting"]) == 3


def test_its_file_holds_references_and_no_secret(watched: Watched) -> None:
    bind("file:hook", "pager", "hooks.example.org", kind="channel")
    watched.look(0)
    kept = json.loads(watched.path.read_text())["routes"]["worker-down"]
    settings = {"url": "file:hook"}
    bound = {"file:hook": ["hooks.example.org"]}
    assert kept == [{"name": "pager", "kind": "webhook", "settings": settings, "bound": bound}]
