"""A driver is never started without a connector that its application names."""

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
