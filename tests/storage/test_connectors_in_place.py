"""A local driver uses its connectors' jars where they are installed, without copies of its own."""

from pathlib import Path

import pytest

from queries.domain.protocol import RunState
from tests.spark.driver_under_test import rate_query, wait_for
from tests.storage.fenced_drivers import launched
from tests.storage.stores import S3Store

pytestmark = [pytest.mark.spark, pytest.mark.s3]


def test_no_jar_is_copied_and_the_driver_and_its_tasks_find_the_classes(
    tmp_path: Path, s3: S3Store
) -> None:
    spec = rate_query(sink={"format": "json", "options": {"path": s3.place("out")}})
    driver = launched(tmp_path, s3)
    try:
        driver.ready()
        driver.start(11, spec, checkpoint=s3.place("checkpoint"))
        found = driver.wait_run(11, RunState.RUNNING, RunState.FAILED)
        assert found.state is RunState.RUNNING, found.error
        wait_for(lambda: (run := driver.run(11)) and run.first_commit_at, "a batch is committed")
        assert [jar.name for jar in driver.directory.rglob("*.jar")] == []
    finally:
        driver.end()
