"""Brokers that an admin has allowed: what is asked of others is tests/security's."""

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.BROKER_HOSTS = ["*"]
