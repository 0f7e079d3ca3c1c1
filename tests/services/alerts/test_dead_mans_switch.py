"""The outside watcher is called while all of Headgate works, and only then."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from queries.domain.system import Part, SystemHealth, ok, problem
from queries.services.alerts import watcher
from queries.services.alerts.watcher import NEEDED, call_outside

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


class Outside(ThreadingHTTPServer):
    """An outside watcher, and Headgate's own web process, on one port."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        super().__init__(("127.0.0.1", 0), _Answer)
        self.base = f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Outside)
        self.server.calls.append(self.path)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
        else:
            self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def outside(settings: Any, tmp_path: Any) -> Iterator[Outside]:
    """An outside watcher whose address is a secret."""
    server = Outside()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    settings.SECRETS_DIR = tmp_path
    settings.ALERT_NETWORKS = ["127.0.0.0/8"]
    settings.WATCHED_URL = f"{server.base}/healthz"
    settings.DEAD_MANS_SWITCH_URL = "file:switch"
    (tmp_path / "switch").write_text(f"{server.base}/ping/5ecret-token\n")
    (tmp_path / "switch").chmod(0o600)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Part]:
    """The health of each part, which the story may change."""
    found = {name: ok(name, "works") for name in (*NEEDED, "backlog")}
    monkeypatch.setattr(
        watcher, "system_health", lambda now: SystemHealth(now, tuple(found.values()))
    )
    return found


def test_it_is_called_while_all_works(outside: Outside, parts: dict[str, Part]) -> None:
    assert call_outside(now=NOW) == ""
    assert outside.calls == ["/healthz", "/ping/5ecret-token"]


@pytest.mark.parametrize("name", NEEDED)
def test_it_is_not_called_while_a_part_has_a_problem(
    outside: Outside, parts: dict[str, Part], name: str
) -> None:
    parts[name] = problem(name, "does not work")
    assert call_outside(now=NOW) == f"not all of Headgate works: {name}"
    assert outside.calls == ["/healthz"]


def test_it_is_not_called_while_the_console_does_not_answer(
    outside: Outside, parts: dict[str, Part], settings: Any
) -> None:
    settings.WATCHED_URL = "http://127.0.0.1:9/healthz"
    assert call_outside(now=NOW) == "not all of Headgate works: web"
    assert outside.calls == []


def test_what_is_behind_does_not_keep_it_from_calling(
    outside: Outside, parts: dict[str, Part]
) -> None:
    parts["backlog"] = problem("backlog", "The ledger is behind.")
    assert call_outside(now=NOW) == ""


def test_a_redirect_is_not_followed(
    outside: Outside, parts: dict[str, Part], settings: Any
) -> None:
    settings.DEAD_MANS_SWITCH_URL = f"{outside.base}/moved"
    assert "302" in call_outside(now=NOW)
    assert outside.calls == ["/healthz", "/moved"]


def test_a_private_network_is_refused_unless_it_is_allowed(
    outside: Outside, parts: dict[str, Part], settings: Any
) -> None:
    settings.ALERT_NETWORKS = []
    assert "HEADGATE_ALERT_NETWORKS" in call_outside(now=NOW)
    assert outside.calls == ["/healthz"]


def test_why_it_could_not_be_called_names_no_secret(
    outside: Outside, parts: dict[str, Part], tmp_path: Any
) -> None:
    (tmp_path / "switch").write_text("http://127.0.0.1:9/ping/5ecret-token\n")
    said = call_outside(now=NOW)
    assert "no connection" in said
    assert "5ecret-token" not in said
    (tmp_path / "switch").unlink()
    assert "HEADGATE_DEAD_MANS_SWITCH_URL" in call_outside(now=NOW)


def test_without_an_address_nothing_is_called(
    outside: Outside, parts: dict[str, Part], settings: Any
) -> None:
    settings.DEAD_MANS_SWITCH_URL = ""
    assert "not set" in call_outside(now=NOW)
    assert outside.calls == []
