"""What the server refuses, and servers that do not answer: said in a line, never as a traceback."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import trustme

from tests.cli.conftest import Shell

TOKEN = "0123456789abcdef"
OPERATION = b'{"id": "7", "verb": "start", "query": "delays", "outcome": "DONE"}'
LOST = 0  # the status of an answer that does not come: the connection ends
ME = b'{"results": [], "next": null}'


@contextmanager
def serving(
    answers: list[tuple[int, dict[str, str], bytes]], tls: ssl.SSLContext | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Serve these answers, the last one for ever; yield the port and what came.

    Of a GET that is its token, of a POST its key.
    """
    came: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(self.headers.get("Authorization", ""))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(self.headers["Idempotency-Key"])

        def answer(self, sent: str) -> None:
            came.append(sent)
            status, headers, body = answers.pop(0) if len(answers) > 1 else answers[0]
            if status == LOST:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    class Quiet(HTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing of clients that do not trust this certificate."""

    with Quiet(("127.0.0.1", 0), Handler) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1], came
        finally:
            server.shutdown()
            thread.join()


def at(folder: Path, url: str, **env: str) -> Shell:
    return Shell(folder, url, {"HEADGATE_URL": url, "HEADGATE_TOKEN": TOKEN, **env})


def test_a_server_that_is_not_there_is_asked_again_and_then_told(tmp_path: Path) -> None:
    done = at(tmp_path, "http://127.0.0.1:9")("get", "queries", code=5)
    assert "http://127.0.0.1:9 is not responding" in done.err
    assert "Traceback" not in done.err


def test_a_busy_server_is_asked_again_after_what_it_says(tmp_path: Path) -> None:
    busy: tuple[int, dict[str, str], bytes] = (503, {"Retry-After": "1"}, b"{}")
    with serving([busy, busy, (200, {}, ME)]) as (port, came):
        done = at(tmp_path, f"http://127.0.0.1:{port}")("get", "queries")
    assert done.err == "There are no queries.\n"
    assert came == [f"Token {TOKEN}"] * 3


def test_an_answer_that_was_lost_is_asked_for_again_with_the_same_key(tmp_path: Path) -> None:
    lost: tuple[int, dict[str, str], bytes] = (LOST, {}, b"")
    at_work: tuple[int, dict[str, str], bytes] = (409, {"Retry-After": "0"}, b"{}")
    with serving([lost, *[at_work] * 6, (202, {}, OPERATION)]) as (port, came):
        done = at(tmp_path, f"http://127.0.0.1:{port}")("start", "delays", "-o", "name")
    assert done.out.strip() == "operation/7"
    assert len(came) == 8
    assert len(set(came)) == 1


def test_a_conflict_is_no_lost_answer(tmp_path: Path) -> None:
    body = b'{"title": "Conflict", "status": 409, "detail": "There is another."}'
    with serving([(409, {}, body)]) as (port, came):
        done = at(tmp_path, f"http://127.0.0.1:{port}")("start", "delays", code=1)
    assert "There is another." in done.err
    assert len(came) == 1


def test_a_request_whose_answers_are_all_lost_may_have_been_done(tmp_path: Path) -> None:
    with serving([(LOST, {}, b"")]) as (port, came):
        done = at(tmp_path, f"http://127.0.0.1:{port}")("start", "delays", code=5)
    assert "check what it changed" in done.err
    assert len(set(came)) == 1
    assert len(came) > 1


def test_no_token_follows_a_redirect(tmp_path: Path) -> None:
    with serving([(200, {}, ME)]) as (elsewhere, came):
        there = {"Location": f"http://127.0.0.1:{elsewhere}/"}
        with serving([(302, there, b"")]) as (port, _):
            done = at(tmp_path, f"http://127.0.0.1:{port}")("get", "queries", code=5)
    assert "with a redirect to" in done.err
    assert came == []


def test_a_page_that_is_not_headgates_is_told(tmp_path: Path) -> None:
    with serving([(200, {}, b"<html>")]) as (port, _):
        done = at(tmp_path, f"http://127.0.0.1:{port}")("get", "queries", code=5)
    assert "not a Headgate response" in done.err


def test_a_certificate_is_checked_with_the_ca_that_is_named(tmp_path: Path) -> None:
    ca = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(tls)
    trusted = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(trusted))
    with serving([(200, {}, ME)], tls) as (port, came):
        shell = at(tmp_path, f"https://127.0.0.1:{port}")
        refused = shell("get", "queries", code=5)
        assert "is not trusted" in refused.err
        assert "--ca" in refused.err
        assert came == []
        answered = shell("--ca", str(trusted), "get", "queries")
    assert answered.err == "There are no queries.\n"
    missing = shell("--ca", "nothing.pem", "get", "queries", code=1)
    assert "does not exist" in missing.err


def test_an_answer_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    body = b'{"title": "Sorry \\u001b[2J\\u202e", "status": 500, "detail": ""}'
    with serving([(500, {}, body)]) as (port, _):
        done = at(tmp_path, f"http://127.0.0.1:{port}")("get", "queries", code=5)
    assert "Sorry" in done.err
    assert "\x1b" not in done.err
    assert "\u202e" not in done.err
