"""Fixtures of the tests that start a real Spark driver."""

from collections.abc import Iterator

import pytest

from examples.flights import definitions
from tests.conftest_redis import make_ingester, nudged, redis_client, valkey
from tests.spark.driver_under_test import STRICT, DriverUnderTest

__all__ = ["make_ingester", "nudged", "redis_client", "valkey"]  # fixtures

#: The functions of `users_code` in the driver that the streams share.
USERS_CODE = """
import os
import time


def writer(spark, params):
    frame = spark.readStream.format("rate").option("rowsPerSecond", "5").load()

    def keep(batch, number):
        rows = batch.count()
        if number >= params.get("fail_at", 1_000_000):
            raise ConnectionRefusedError(f"no answer to {os.environ['TOKEN']}")

    return frame.writeStream.foreachBatch(keep)


def sets(spark, params):
    writer = spark.readStream.format("rate").load().writeStream.format("noop")
    writer = writer.queryName(params.get("name", "theirs"))
    writer = writer.option("checkpointLocation", params["at"])
    return writer.trigger(processingTime=params["every"]) if "every" in params else writer


def slow(spark, params):
    def take(batch, number):
        tasks = batch.sparkSession.sparkContext.parallelize(range(24), 24)
        tasks.foreach(lambda _: time.sleep(0.5))

    return spark.readStream.format("rate").load().writeStream.foreachBatch(take)


def frame(spark, params):
    return spark.readStream.format("rate").load().select("value")


def starts(spark, params):
    frame = spark.readStream.format("rate").load()
    return frame.writeStream.format("noop").option("checkpointLocation", params["at"]).start()


def static(spark, params):
    return spark.range(3)


def calls(spark, params):
    from headgate_async import map_async

    async def same(row, client):
        return row.asDict()

    return map_async(frame(spark, params), same, key=None, schema="value LONG")
"""


@pytest.fixture(scope="session")
def streams_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverUnderTest]:
    """Return the session's driver: settings and code of the demo, and code of users.

    Runs have numbers that no other file has: their checkpoints stay.
    """
    home = tmp_path_factory.mktemp("driver")
    code = home / "code-root"
    code.mkdir()
    (code / "users_code.py").write_text(USERS_CODE)
    secrets = home / "secrets"
    secrets.mkdir()
    (secrets / "token").write_text("s3cr3t-value\n")
    driver = DriverUnderTest(home)
    roots, digest = driver.launcher.freeze_code((str(code), str(definitions.CODE)))
    try:
        driver.launch(
            '<allocations><pool name="light"><minShare>1</minShare></pool></allocations>',
            code_roots=roots,
            code_sha256=digest,
            memory=definitions.APPLICATION["memory"],
            conf={**definitions.APPLICATION["conf"], **STRICT},
            secrets_dir=str(secrets),
            env={"TOKEN": "file:token"},
            data_umask=0o027,
        )
        driver.ready()
        yield driver
    finally:
        driver.end()


@pytest.fixture
def driver(streams_driver: DriverUnderTest) -> Iterator[DriverUnderTest]:
    """Return the session's driver; at the end of a test nothing runs in it."""
    yield streams_driver
    streams_driver.rest()
