"""Identity providers, and the settings that name them."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from queries.services.access.sign_ins import add_group_role
from tests.oidc.liar import Liar, liar
from tests.oidc.real import CLIENT_ID, CLIENT_SECRET, RealProvider, real_provider


def trust(settings: Any, issuer: str) -> None:
    """Let the console know a provider."""
    settings.OIDC_ISSUER = issuer
    settings.OIDC_CLIENT_ID = CLIENT_ID
    settings.OIDC_CLIENT_SECRET = CLIENT_SECRET
    settings.OIDC_SCOPES = ["profile", "groups"]
    settings.OIDC_NAME = "Acme ID"
    settings.OIDC_CONTACT = "data-platform@example.org"


def give(**roles: str) -> None:
    """Let groups give roles: give(data="author")."""
    for group, role in roles.items():
        add_group_role(group=group, role=role, actor="tests", now=timezone.now())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealProvider]:
    """Run the real provider for the tests of a file."""
    with real_provider(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture
def real(running: RealProvider, settings: Any, db: None) -> RealProvider:
    """Return the real provider, which the console trusts and at which nobody is known yet."""
    trust(settings, running.issuer)
    running.has()
    return running


@pytest.fixture
def lying(settings: Any, db: None) -> Iterator[Liar]:
    """Return a provider that the console trusts, and that lies as it is told."""
    with liar() as told:
        trust(settings, told.issuer)
        give(data="operator")
        yield told
