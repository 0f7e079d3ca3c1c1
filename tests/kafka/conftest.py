"""A world for the stories on a real broker: real drivers, the ingester, and a Redis.

Stories of single queries share one driver. Their runs have numbers that no other story has: each
file begins at a thousand of its own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane import hosts
from examples.flights.definitions import CODE
from tests import pieces
from tests.conftest_redis import MakeIngester, make_ingester, nudged, redis_client, valkey
from tests.kafka.world import World
from tests.spark.driver_under_test import DriverUnderTest

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
    one = World(tmp_path, make_ingester(known=hosts, living=hosts.living))
    try:
        yield one
    finally:
        one.end()


@pytest.fixture(scope="session")
def kafka_driver(
    tmp_path_factory: pytest.TempPathFactory, java_home: str
) -> Iterator[DriverUnderTest]:
    """Return the session's driver: 10 cores, the demo's code, and secrets of its own."""
    one = DriverUnderTest(tmp_path_factory.mktemp("driver"))
    secrets = one.home / "secrets"
    secrets.mkdir()
    jars = tuple(str(jar) for jar in sorted(pieces.kafka_connector().glob("*.jar")))
    roots, digest = one.launcher.freeze_code((str(CODE),))
    try:
        one.launch(
            master="local[10]",
            memory="1g",
            jars=jars,
            code_roots=roots,
            code_sha256=digest,
            secrets_dir=str(secrets),
        ).ready()
        yield one
    finally:
        one.end()


@pytest.fixture
def driver(kafka_driver: DriverUnderTest) -> Iterator[DriverUnderTest]:
    """Return the session's driver; at the end of a test nothing runs in it."""
    yield kafka_driver
    kafka_driver.rest()
