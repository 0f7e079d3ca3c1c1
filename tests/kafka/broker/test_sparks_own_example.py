"""Spark's own Kafka word count runs unchanged against the trial broker."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from queries.domain.protocol import RunState
from tests import pieces
from tests.conftest_kafka import KafkaBroker
from tests.spark.driver_under_test import wait_for
from tests.spark.scripts.script_driver import ScriptUnderTest, example
from tests.spark.scripts.test_sparks_own_examples import tables

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[ScriptUnderTest]:
    version = pieces.spark_version()
    if missing := pieces.missing_connector("kafka", version):
        pytest.skip(missing)
    driver = ScriptUnderTest(tmp_path, application="words")
    jars = pieces.connector_jars("kafka", version)
    driver.spec = replace(driver.spec, jars=jars, master="local[3]")
    try:
        yield driver
    finally:
        driver.end()


def test_the_word_count_counts_what_comes(driver: ScriptUnderTest, broker: KafkaBroker) -> None:
    script = example("structured_kafka_wordcount.py")
    topic = broker.topic(partitions=1)
    driver.launch_script(script.parent, script.name, broker.servers, "subscribe", topic)
    driver.wait_line("", RunState.RUNNING)
    broker.produce(
        topic, [(None, text) for text in ("apache spark", "apache hadoop", "spark spark")]
    )
    expected = {("apache", "2"), ("spark", "3"), ("hadoop", "1")}
    wait_for(lambda: expected in tables(driver.log(2000)), "the words are counted")
    found = driver.found("")
    assert found is not None
    assert found.temporary == "the console sink cannot continue an aggregation"
