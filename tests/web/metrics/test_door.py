"""Who may read the metrics: a token, a session, an allowed network; nobody else."""

import gzip
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.utils import timezone

from controlplane import environment
from queries.services.access.tokens import create_token


def _token(user: User) -> str:
    _, secret = create_token(user=user, name="prometheus", actor="ada", now=timezone.now())
    return str(secret)


def _ask(client: Client, **headers: str) -> Any:
    return client.get("/metrics", headers=headers)


def test_a_stranger_is_told_what_to_send_and_nothing_else(client: Client, db: None) -> None:
    answer = _ask(client)
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == "Bearer"
    text = answer.content.decode()
    assert "Authorization: Bearer TOKEN" in text
    assert "headgate_" not in text


@pytest.mark.parametrize("scheme", ["Bearer", "Token"])
def test_a_viewers_token_opens_it_under_either_name(
    client: Client, viewer: User, scheme: str
) -> None:
    answer = _ask(client, authorization=f"{scheme} {_token(viewer)}")
    assert answer.status_code == 200
    assert "headgate_build_info" in answer.content.decode()


def test_a_token_without_a_role_a_wrong_one_and_an_expired_one_do_not(
    client: Client, outsider: User, viewer: User
) -> None:
    expired = _token(viewer)
    viewer.auth_token_set.update(expiry=timezone.now() - timedelta(seconds=1))
    for token in (_token(outsider), "nonsense", "", expired):
        assert _ask(client, authorization=f"Bearer {token}").status_code == 401


def test_a_signed_in_viewer_can_look_and_an_outsider_cannot(
    client: Client, viewer: User, outsider: User
) -> None:
    client.force_login(viewer)
    assert _ask(client).status_code == 200
    client.force_login(outsider)
    assert _ask(client).status_code == 401


@pytest.mark.parametrize(
    ("networks", "peer", "status"),
    [
        (["10.1.0.0/16"], "10.1.2.3", 200),
        (["10.1.0.0/16"], "10.2.2.3", 401),
        (["10.1.0.0/16", "::1/128"], "::1", 200),
        ([], "127.0.0.1", 401),
        (["10.1.0.0/16"], "", 401),  # a Unix socket has no address
    ],
)
def test_an_allowed_network_needs_no_token(
    client: Client, db: None, settings: Any, networks: list[str], peer: str, status: int
) -> None:
    settings.METRICS_NETWORKS = networks
    answer = client.get("/metrics", REMOTE_ADDR=peer, HTTP_X_FORWARDED_FOR="10.1.9.9")
    assert answer.status_code == status


def test_a_scraper_gets_the_form_and_the_compression_that_it_asks_for(
    client: Client, viewer: User
) -> None:
    client.force_login(viewer)
    plain = _ask(client)
    assert plain["Content-Type"].startswith("text/plain; version=")
    packed = _ask(
        client, accept="application/openmetrics-text; version=1.0.0", accept_encoding="gzip"
    )
    assert packed["Content-Type"].startswith("application/openmetrics-text")
    assert gzip.decompress(packed.content).decode().endswith("# EOF\n")


def test_nothing_is_changed_by_way_of_it(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    assert client.post("/metrics").status_code == 405


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (environment.networks, "10.1.0.0/99"),
        (environment.networks, "everybody"),
        (environment.labels, "team"),
        (environment.labels, "team=Über"),
    ],
)
def test_a_wrong_setting_stops_the_start_and_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, read: Any, value: str
) -> None:
    monkeypatch.setenv("HEADGATE_TRIED", value)
    with pytest.raises(ImproperlyConfigured, match="HEADGATE_TRIED") as raised:
        read("HEADGATE_TRIED")
    environment.DECLARED.pop("HEADGATE_TRIED")
    assert "such as" in str(raised.value)
