"""Each kind of channel delivers to a real receiver, says why it could not, and names no secret."""

import ipaddress
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from queries.channels.base import Message, SendFailed
from queries.channels.kinds import KINDS, ChannelKind, send
from queries.channels.webhook import signature
from tests.channels.receivers import Receiver, post_office, receiving, server_context

HERE = [ipaddress.ip_network("127.0.0.0/8")]
MESSAGE = Message(
    key="headgate/7f3a/1",
    step="opened",
    severity="critical",
    kind="failed",
    title="delays: failed",
    text="[DIVIDE_BY_ZERO] Division by zero.",
    url="https://headgate.example/alerts/7f3a/",
    at=datetime(2026, 1, 5, 3, 0, tzinfo=UTC),
    labels={"team": "a"},
    facts=(("Application", "flights"),),
)
RESOLVED = replace(MESSAGE, step="resolved", title="delays: failed")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver without TLS, which only an allowed network may be."""
    with receiving() as server:
        yield server


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who signs the certificates of these tests."""
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """The same, trusted by this process."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return authority


def deliver(kind: str, settings: dict[str, Any], message: Message = MESSAGE) -> None:
    send(kind, settings, message, timeout_s=10, allowed=HERE)


def test_every_kind_of_channel_has_a_sender() -> None:
    assert set(KINDS) == set(ChannelKind)


# --- webhook ------------------------------------------------------------------------------


def test_a_webhook_is_signed_over_time_and_body(receiver: Receiver) -> None:
    deliver("webhook", {"url": receiver.url, "secret": "s3cret-of-ours"})
    (got,) = receiver.got
    assert got.path == "/hook?x=1"
    assert got.headers["Host"] == f"127.0.0.1:{receiver.server_port}"
    at = got.headers["Headgate-Timestamp"]
    assert int(at) == MESSAGE.at.timestamp()
    assert got.headers["Headgate-Signature"] == signature("s3cret-of-ours", at, got.body)
    assert got.form["version"] == 1
    assert got.form["facts"] == [{"name": "Application", "value": "flights"}]
    assert "s3cret" not in json.dumps(got.headers) + got.body.decode()


def test_no_redirect_is_followed(receiver: Receiver) -> None:
    receiver.status, receiver.location = 302, "http://127.0.0.1:9/"
    with pytest.raises(SendFailed, match="302"):
        deliver("webhook", {"url": receiver.url, "secret": "x"})
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("status", "lasting"), [(400, True), (403, True), (429, False), (503, False)]
)
def test_it_is_said_whether_trying_again_can_help(
    receiver: Receiver, status: int, lasting: bool
) -> None:
    receiver.status = status
    with pytest.raises(SendFailed) as failed:
        deliver("webhook", {"url": receiver.url, "secret": "x"})
    assert failed.value.lasting is lasting
    assert "127.0.0.1" not in str(failed.value)


def test_a_receiver_that_never_answers_is_waited_for_so_long_and_no_longer(
    receiver: Receiver,
) -> None:
    receiver.hold.clear()
    with pytest.raises(SendFailed, match="no response in time"):
        send("webhook", {"url": receiver.url, "secret": "x"}, MESSAGE, timeout_s=0.3, allowed=HERE)


@pytest.mark.parametrize(
    "url",
    ["ftp://example.org/", "https://", "x", "https://user:pw@example.org/", "https://a:99999/"],
)
def test_what_is_no_address_of_a_webhook_is_refused(url: str) -> None:
    with pytest.raises(SendFailed, match="Its URL is not") as failed:
        deliver("webhook", {"url": url, "secret": "x"})
    assert failed.value.lasting
    assert "pw" not in str(failed.value)


def test_the_connection_goes_to_the_address_that_was_judged(
    trusted: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["127.0.0.1", "10.0.0.1"])

    def rebinding(host: str, port: int, *_: Any, **__: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    with receiving(server_context(trusted, "hooks.example.org")) as server:
        url = f"https://hooks.example.org:{server.server_port}/"
        deliver("webhook", {"url": url, "secret": "x"})
        (got,) = server.got
    assert got.headers["Host"] == f"hooks.example.org:{server.server_port}"
    assert next(answers) == "10.0.0.1"  # it was asked once


def test_a_certificate_for_another_name_is_refused(
    trusted: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        receiving(server_context(trusted, "other.example.org")) as server,
        pytest.raises(SendFailed, match="certificate"),
    ):
        deliver("webhook", {"url": server.url, "secret": "x"})
    assert server.got == []


# --- paging services ----------------------------------------------------------------------


def test_pagerduty_triggers_and_resolves_one_alert_by_its_key(receiver: Receiver) -> None:
    settings = {"routing_key": "R0UTING", "url": receiver.url}
    deliver("pagerduty", settings)
    deliver("pagerduty", settings, RESOLVED)
    opened, resolved = (got.form for got in receiver.got)
    assert (opened["event_action"], resolved["event_action"]) == ("trigger", "resolve")
    assert opened["dedup_key"] == resolved["dedup_key"] == MESSAGE.key
    assert opened["payload"]["summary"] == "delays: failed"
    assert opened["payload"]["custom_details"]["team"] == "a"
    assert opened["links"][0]["href"] == MESSAGE.url


# --- mail ---------------------------------------------------------------------------------


def mail(port: int, **more: Any) -> dict[str, Any]:
    return {
        "host": "127.0.0.1",
        "port": port,
        "sender": "headgate@example.org",
        "recipients": ["ada@example.org", "ben@example.org"],
        "username": "headgate",
        "password": "pw",
        **more,
    }


def test_mail_goes_over_tls_to_all_and_is_one_thread(trusted: trustme.CA) -> None:
    with post_office(server_context(trusted, "127.0.0.1")) as office:
        deliver("mail", mail(office.port))
        deliver("mail", mail(office.port), RESOLVED)
    opened, resolved = office.mails
    assert office.recipients[:2] == ["ada@example.org", "ben@example.org"]
    assert opened["Subject"] == "[critical] delays: failed"
    assert resolved["Subject"] == "[critical] Resolved: delays: failed"
    assert opened["References"] == resolved["References"]
    text = opened.get_content()  # type: ignore[attr-defined]
    assert "DIVIDE_BY_ZERO" in text
    assert "Application: flights" in text
    assert MESSAGE.url in text
    assert office.logins == [b"headgate", b"headgate"]


def test_what_was_perhaps_sent_before_is_marked(trusted: trustme.CA) -> None:
    with post_office(server_context(trusted, "127.0.0.1")) as office:
        deliver("mail", mail(office.port), replace(MESSAGE, repeat=True))
    assert office.mails[0]["Subject"].endswith("(sent once more)")


def test_a_title_of_two_lines_adds_no_header(trusted: trustme.CA) -> None:
    sly = replace(MESSAGE, title="delays\nBcc: eve@example.org")
    with post_office(server_context(trusted, "127.0.0.1")) as office:
        deliver("mail", mail(office.port), sly)
    assert office.mails[0]["Subject"] == "[critical] delays Bcc: eve@example.org"
    assert "Bcc" not in office.mails[0]
    assert "eve@example.org" not in office.recipients


def test_a_mail_server_whose_certificate_nobody_trusts_gets_nothing(
    authority: trustme.CA,
) -> None:
    with (
        post_office(server_context(authority, "127.0.0.1")) as office,
        pytest.raises(SendFailed, match="certificate"),
    ):
        deliver("mail", mail(office.port))
    assert office.logins == []


def test_a_wrong_password_and_a_refusal_are_told_apart_from_a_server_that_is_busy(
    trusted: trustme.CA,
) -> None:
    with post_office(server_context(trusted, "127.0.0.1")) as office:
        with pytest.raises(SendFailed, match="login was rejected") as failed:
            deliver("mail", mail(office.port, password="wrong-pw"))
        assert failed.value.lasting
        assert "wrong-pw" not in str(failed.value)
        office.refuses = "554 no"
        with pytest.raises(SendFailed, match="554") as failed:
            deliver("mail", mail(office.port))
        assert failed.value.lasting
        office.refuses = "451 later"
        with pytest.raises(SendFailed, match="451") as failed:
            deliver("mail", mail(office.port))
        assert not failed.value.lasting
    with pytest.raises(SendFailed, match="did not respond"):
        deliver("mail", mail(office.port))


def test_mail_over_tls_from_the_first_byte(trusted: trustme.CA) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(SendFailed, match="did not respond"),
    ):
        send(
            "mail",
            mail(silent.getsockname()[1], security="tls"),
            MESSAGE,
            timeout_s=0.3,
        )
    assert ssl.create_default_context().verify_mode is ssl.CERT_REQUIRED


# --- chat ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["webhook", "pagerduty", "chat"])
def test_every_fact_is_delivered_beside_the_text(kind: str, receiver: Receiver) -> None:
    receiver.status = 200
    settings = {"url": receiver.url, "secret": "x", "routing_key": "x"}
    if kind == "chat":
        settings = {"url": f"mmost://127.0.0.1:{receiver.server_port}/t0ken1234567890"}
    facts = (("Where", "query delays, host a"), ("What to do", "Free up space there."))
    deliver(kind, settings, replace(MESSAGE, facts=facts))
    (got,) = receiver.got
    for words in (MESSAGE.text, *(word for fact in facts for word in fact)):
        assert words in got.body.decode()


def test_chat_goes_through_apprise(receiver: Receiver) -> None:
    receiver.status = 200
    deliver("chat", {"url": f"mmost://127.0.0.1:{receiver.server_port}/t0ken1234567890"})
    (got,) = receiver.got
    assert "DIVIDE_BY_ZERO" in got.form["text"]
    receiver.status = 500
    with pytest.raises(SendFailed, match="did not accept it"):
        deliver("chat", {"url": f"mmost://127.0.0.1:{receiver.server_port}/t0ken1234567890"})


@pytest.mark.parametrize(
    "url", ["json://127.0.0.1/", "syslog://", "file:///etc/passwd", "macosx://"]
)
def test_other_services_of_apprise_are_refused(url: str) -> None:
    with pytest.raises(SendFailed, match="must start with one of") as failed:
        deliver("chat", {"url": url})
    assert failed.value.lasting


def test_apprise_writes_no_address_into_a_log(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = 500
    with pytest.raises(SendFailed):
        deliver("chat", {"url": f"mmost://127.0.0.1:{receiver.server_port}/t0ken1234567890"})
    assert "t0ken" not in caplog.text
