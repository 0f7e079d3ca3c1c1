"""A driver is never started without a connector or the Spark that its application names."""

from pathlib import Path
from typing import Any

from queries.domain.states import Phase
from queries.models.drivers import Driver
from tests.scenarios.stage import Stage


def test_a_launch_without_a_named_connector_is_refused_and_a_start_tries_again(
    stage: Stage, tmp_path: Path, settings: Any
) -> None:
    settings.CONNECTORS_DIR = tmp_path
    stage.application("kafka-jobs", connectors=["kafka"])
    stage.query("copy", "kafka-jobs")

    stage.start("copy")

    assert stage.phase("copy") == Phase.FAILED
    assert "the connector kafka, which is not installed" in stage.row("copy").phase_detail.text
    assert "Install it with `make kafka`." in stage.row("copy").phase_detail.text
    assert stage.launcher.highest_epoch("kafka-jobs") == 0  # nothing was spawned

    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "sql-kafka-1.jar").touch()
    stage.start("copy")
    stage.ready("kafka-jobs")
    stage.commit("copy")

    assert stage.phase("copy") == Phase.RUNNING
    assert Driver.objects.filter(ended_at=None).count() == 1
    assert stage.launcher.spec("kafka-jobs").jars[0] == str(tmp_path / "kafka" / "sql-kafka-1.jar")


def test_a_launch_without_the_named_spark_is_refused_and_a_start_tries_again(
    stage: Stage, tmp_path: Path, settings: Any
) -> None:
    settings.SPARKS_DIR, settings.CONNECTORS_DIR = tmp_path / "sparks", tmp_path / "connectors"
    stage.application("older", spark="4.2", connectors=["kafka"])
    stage.query("copy", "older")

    stage.start("copy")

    assert stage.phase("copy") == Phase.FAILED
    assert "runs on Spark 4.2, which is not installed" in stage.row("copy").phase_detail.text
    assert "Run `make spark ARGS=4.2` on this host." in stage.row("copy").phase_detail.text

    (tmp_path / "sparks" / "4.2" / "pyspark").mkdir(parents=True)
    ours = tmp_path / "connectors" / "kafka"
    ours.mkdir(parents=True)
    (ours / "sql-kafka-ours.jar").touch()
    stage.start("copy")

    assert stage.phase("copy") == Phase.FAILED  # a connector for our Spark is for no other
    said = stage.row("copy").phase_detail.text
    assert f"not installed in {tmp_path}/connectors/4.2." in said
    assert 'Install it with `make connector ARGS="kafka --spark 4.2"`.' in said

    theirs = tmp_path / "connectors" / "4.2" / "kafka"
    theirs.mkdir(parents=True)
    (theirs / "sql-kafka-1.jar").touch()
    stage.start("copy")
    stage.ready("older")
    stage.commit("copy")

    assert stage.phase("copy") == Phase.RUNNING
    spec = stage.launcher.spec("older")
    assert spec.spark == str(tmp_path / "sparks" / "4.2")
    assert str(theirs / "sql-kafka-1.jar") in spec.jars
