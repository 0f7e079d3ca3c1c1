"""A world for the stories on a real broker: real drivers, the ingester, and a Redis."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane import senders
from tests import pieces
from tests.conftest_redis import MakeIngester, make_ingester, nudged, redis_client, valkey
from tests.kafka.world import World

__all__ = ["make_ingester", "nudged", "redis_client", "valkey"]  # fixtures


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    """Let the broker of the tests be asked before a query has been started."""
    settings.BROKER_HOSTS = ["127.0.0.1", "localhost"]


@pytest.fixture
def world(
    tmp_path: Path, settings: Any, java_home: str, make_ingester: MakeIngester
) -> Iterator[World]:
    """Yield a world of one test; its drivers end with it."""
    settings.CONNECTORS_DIR = pieces.kafka_connector().parent
    settings.EVENT_STREAM = "events"
    one = World(tmp_path, make_ingester(known=senders, living=senders.living))
    try:
        yield one
    finally:
        one.end()
