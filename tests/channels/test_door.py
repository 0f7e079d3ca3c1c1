"""An alert goes to the host that its address names, in no private network, whatever sends it."""

import ast
import ipaddress
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from queries.channels import chat
from queries.channels.base import PermittedHosts, SendFailed, is_public, through
from queries.channels.kinds import KINDS, destination_of, send
from tests.channels.receivers import Receiver, receiving
from tests.channels.test_channels import HERE, MESSAGE

#: Each leads into a private network, to this machine, or to no single host.
NOT_PUBLIC = [
    "127.0.0.1",
    "10.1.2.3",
    "100.64.0.1",
    "169.254.169.254",
    "192.168.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "::7f00:1",  # IPv4-compatible
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",  # NAT64
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",  # 6to4
    "2002:a9fe:a9fe::1",
    "fe80::1",
    "fec0::1",  # site-local
    "fd00::1",
    "ff0e::1",  # multicast of global scope
    "4000::1",  # not given out
]
PUBLIC = ["9.9.9.9", "2620:fe::fe", "::ffff:9.9.9.9", "64:ff9b::909:909", "2002:909:909::1"]
TOKEN = "t0ken1234567890"


@pytest.mark.guarantee("G-ALERT-1")
@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_no_message_goes_to_an_address_that_is_not_public(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_public(ipaddress.ip_address(address))
    monkeypatch.setattr(socket, "getaddrinfo", answering(address))
    monkeypatch.setattr(socket.socket, "connect", _audited)
    with pytest.raises(SendFailed) as failed:
        send("webhook", {"url": "https://hooks.example.org/", "secret": "x"}, MESSAGE, timeout_s=2)
    assert "private network" in str(failed.value)
    assert failed.value.lasting
    assert address not in str(failed.value)


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def answering(*addresses: str) -> Any:
    """Return a resolver that knows these addresses for every name."""

    def found(host: str, port: int, *_: Any, **__: Any) -> Any:
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                *(socket.SOCK_STREAM, 6, ""),
                (address, port, 0, 0) if ":" in address else (address, port),
            )
            for address in addresses
        ]

    return found


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A listener of this machine that nobody has allowed."""
    with receiving() as server:
        server.status = 200
        yield server


def addresses(place: str, *, tls: bool) -> dict[str, str]:
    """Return an address of each chat service that names its host, at that place."""
    s, host, port = "s" if tls else "", *place.split(":")
    found = {
        f"mmost{s}": f"{host}:{port}/{TOKEN}",
        f"rocket{s}": f"user:password@{host}:{port}/#channel",
        f"matrix{s}": f"user:password@{host}:{port}/#room",
        f"ntfy{s}": f"{host}:{port}/topic",
    }
    if tls:
        found |= {
            "workflows": f"{host}:{port}/WORKFLOWID1234/{TOKEN}",
            "zulip": f"bot@{host}/{'a' * 32}",
        }
    return {scheme: f"{scheme}://{rest}" for scheme, rest in found.items()}


def test_every_chat_service_is_tried_here() -> None:
    tried = addresses("a:1", tls=True).keys() | addresses("a:1", tls=False).keys() | set(OWN)
    assert tried == chat.SCHEMES


@pytest.mark.guarantee("G-ALERT-1")
@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("more", ["", "verify=no"])
def test_no_chat_service_reaches_this_machine(receiver: Receiver, tls: bool, more: str) -> None:
    place = f"localhost:{receiver.server_port}"
    for url in addresses(place, tls=tls).values():
        with pytest.raises(SendFailed) as failed:
            send("chat", {"url": f"{url}?{more}"}, MESSAGE, timeout_s=4)
        assert failed.value.lasting, url
        assert TOKEN not in str(failed.value)
    assert receiver.got == []


#: An address of each service with hosts of its own, in every form that leads to another host.
OWN = {
    "slack": [
        f"T1JJ3T3L2/A1BRTD4JD/{'T' * 24}/",
        f"xoxb-{'1' * 12}-{'1' * 12}-{'a' * 24}/%23channel",
    ],
    "tgram": ["123456789:abcdefghijklmnopqrstuvwxyz123456789/12315544/"],
    "discord": [f"{'4' * 24}/{'A' * 64}/"],
    "gchat": [f"workspace/key/{TOKEN}"],
    "wxteams": [f"{'a' * 80}/", f"{'a' * 64}/room"],
}


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are looked up; each is refused by the resolver."""
    names: list[str] = []

    def unknown(host: str, *_: Any, **__: Any) -> Any:
        sys.audit("socket.getaddrinfo", host, 0, 0, 0, 0)
        names.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    return names


@pytest.mark.parametrize("scheme", sorted(OWN))
def test_a_service_with_hosts_of_its_own_asks_those_and_is_bound_by_its_name(
    scheme: str, looked_up: list[str]
) -> None:
    for rest in OWN[scheme]:
        url = f"{scheme}://{rest}"
        with pytest.raises(SendFailed, match="did not accept it"):
            send("chat", {"url": url}, MESSAGE, timeout_s=2)
        assert destination_of("chat", {"url": url}) == scheme
    assert looked_up
    assert set(looked_up) <= set(chat.FIXED[scheme])


def test_every_other_service_asks_the_host_that_its_secret_is_bound_to(
    looked_up: list[str],
) -> None:
    for tls in (True, False):
        for url in addresses("chat.example.org:8443", tls=tls).values():
            with pytest.raises(SendFailed, match="did not accept it"):
                send("chat", {"url": url}, MESSAGE, timeout_s=2)
            assert destination_of("chat", {"url": url}).partition(":")[0] == "chat.example.org"
    assert set(looked_up) == {"chat.example.org"}


@pytest.mark.parametrize("url", ["ntfys://topic", f"zulip://bot@team/{'a' * 32}"])
def test_an_address_that_leads_to_a_host_which_it_does_not_name_is_refused(
    url: str, looked_up: list[str]
) -> None:
    with pytest.raises(SendFailed) as failed:
        send("chat", {"url": url}, MESSAGE, timeout_s=2)
    assert "not in the channel's URL" in str(failed.value)
    assert looked_up == []


@pytest.mark.guarantee("G-ALERT-1")
def test_verify_no_is_refused_and_allowed_networks_get_no_exception(receiver: Receiver) -> None:
    url = f"ntfy://127.0.0.1:{receiver.server_port}/topic?verify=no"
    with pytest.raises(SendFailed) as failed:
        send("chat", {"url": url}, MESSAGE, timeout_s=2, allowed=HERE)
    assert "verify=no" in str(failed.value)
    assert receiver.got == []


def test_no_redirect_of_a_chat_is_followed(receiver: Receiver) -> None:
    with receiving() as other:
        receiver.status, receiver.location = 307, other.url
        url = f"mmost://127.0.0.1:{receiver.server_port}/{TOKEN}?redirect=yes"
        with pytest.raises(SendFailed, match="did not accept it"):
            send("chat", {"url": url}, MESSAGE, timeout_s=4, allowed=HERE)
        assert len(receiver.got) == 1
        assert other.got == []


def test_without_tls_nothing_leaves_but_to_allowed_networks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", answering("9.9.9.9"))
    for kind, url in (("webhook", "http://a.example.org/"), ("chat", "ntfy://a.example.org/t")):
        with pytest.raises(SendFailed, match="not https"):
            send(kind, {"url": url, "secret": "x"}, MESSAGE, timeout_s=2)


@pytest.mark.parametrize("address", ["10.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1"])
def test_an_allowed_network_is_allowed_however_its_address_is_written(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", answering(address))
    monkeypatch.setattr(socket.socket, "connect", _audited)
    with pytest.raises(SendFailed, match="no connection"):
        send(
            "webhook",
            {"url": "https://a.example.org/", "secret": "x"},
            MESSAGE,
            timeout_s=2,
            allowed=[ipaddress.ip_network("10.0.0.0/8")],
        )


def _audited(self: socket.socket, to: Any) -> None:
    sys.audit("socket.connect", self, to)
    raise ConnectionRefusedError


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        *((one, False) for one in ("127.0.0.1", "10.0.0.1", "100.64.0.1", "fd00::1", "9.9.9.9")),
        *((one, True) for one in ("169.254.169.254", "0.0.0.0", "224.0.0.1", "fec0::1", "ff02::1")),
        ("64:ff9b::a9fe:a9fe", True),
    ],
)
def test_a_mail_relay_may_be_private_and_must_be_one_host(
    address: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", answering(address))
    monkeypatch.setattr(socket.socket, "connect", _audited)
    mail = {"host": "mx.example.org", "sender": "a@example.org", "recipients": ["b@example.org"]}
    with pytest.raises(SendFailed, match="link-local" if refused else "did not respond"):
        send("mail", mail, MESSAGE, timeout_s=2)


def test_what_would_lead_around_the_door_is_refused_within_it_and_works_outside() -> None:
    way = PermittedHosts(("example.org",))
    ways_around: list[Callable[[], object]]
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as local,
    ):
        ways_around = [
            lambda: subprocess.run(["true"], check=False),
            lambda: datagrams.sendto(b"", ("127.0.0.1", 9)),
            lambda: local.connect("/nowhere"),
            lambda: requests.get("http://127.0.0.1:9/", timeout=2),
        ]
        for around in ways_around:
            with pytest.raises(SendFailed), through(way):
                around()
    assert subprocess.run(["true"], check=False).returncode == 0


def test_a_refusal_that_a_sender_swallows_is_raised_all_the_same() -> None:
    with (
        pytest.raises(SendFailed, match="not in the channel's URL"),
        through(PermittedHosts(("example.org",))),
        suppress(OSError),
    ):
        socket.create_connection(("127.0.0.1", 9), timeout=2)


#: What can reach another machine.
_NETWORK = {"apprise", "requests", "urllib3", "smtplib", "urllib.request", "http.client", "httpx"}


def test_only_the_senders_of_the_table_use_the_network() -> None:
    """A module of alerts that could send past the door fails here: send through `kinds.send`."""
    root = Path(__file__).parents[2] / "queries"
    found = {
        file.relative_to(root).as_posix()
        for folder in ("channels", "services/alerts")
        for file in (root / folder).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and {getattr(node, "module", ""), *(one.name for one in node.names)} & _NETWORK
    }
    inside = {f"channels/{kind.send.__module__.rpartition('.')[2]}.py" for kind in KINDS.values()}
    #: The watcher asks Headgate's own web process alone.
    assert found <= inside | {"channels/base.py", "services/alerts/watcher.py"}
