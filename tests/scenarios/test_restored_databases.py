"""A database is restored from a backup: checkpoints remember higher epochs than it does."""

import json
from pathlib import Path

import pytest

from queries.domain.checkpoints.ownership import owner_file
from queries.domain.states import OperationOutcome, Phase
from queries.models.definitions import Checkpoint
from queries.models.drivers import Installation
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.sql


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ({"epoch": 700}, 700),
        ({"epoch": 700, "installation": "another"}, 2),
        ({}, 2),
        ({"epoch": 10**30}, 2),  # nobody can draw epochs above it: the next start is refused again
    ],
)
def test_epochs_go_on_above_what_our_own_owner_files_show(
    stage: Stage, tmp_path: Path, text: dict[str, object], epoch: int
) -> None:
    stage.query("delays")
    location = (tmp_path / "delays").as_uri()
    Checkpoint.objects.update(location=location)
    owner = Path(owner_file(location))
    owner.parent.mkdir(parents=True)
    owner.write_text(json.dumps({"installation": str(Installation.get().uuid), **text}))
    operation = stage.start("delays")
    stage.ready("delays")
    stage.launcher.refuse(stage.run("delays").pk, "fenced")
    stage.look()
    stage.wait(10)
    assert stage.run("delays").epoch > epoch
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.DONE


@pytest.mark.parametrize(("reported", "epoch"), [(700, 700), (None, 2), (2**60, 2)])
def test_epochs_go_on_above_what_a_driver_read_in_an_object_store(
    stage: Stage, reported: int | None, epoch: int
) -> None:
    stage.query("delays")
    Checkpoint.objects.update(location="s3a://flights/delays")
    stage.start("delays")
    stage.ready("delays")
    stage.launcher.refuse(stage.run("delays").pk, "fenced", owner_epoch=reported)
    stage.look()
    stage.wait(10)
    assert epoch < stage.run("delays").epoch < epoch + 10
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING
