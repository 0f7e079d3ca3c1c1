"""What a driver within walls is given: the checkpoints and secrets of its application alone."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queries.domain.hosts import Mode, choose
from queries.domain.probes.questions import TASK, PreflightTask, XrayTask
from queries.domain.protocol import SPEC, Assignment, AssignmentEntry, DriverSpec, Want
from queries.domain.triggers.batch_cost import FILE_MANAGER, OUR_FILES
from queries.driver_folder import DriverFolder
from queries.launchers.process.isolation import mounts
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.models.definitions import Checkpoint
from queries.services.supervision.assignments import driver_spec
from tests.launchers.test_contract import HANGS, _spec
from tests.scenarios.stage import Stage


@pytest.mark.django_db
def test_a_driver_is_told_the_checkpoints_of_its_own_application(settings: Any) -> None:
    stage = Stage()
    stage.application("mine")
    for name, application in (("delays", "mine"), ("alerts", "mine"), ("theirs", "")):
        stage.query(name, application)
    stage.up("delays", "mine")
    told = driver_spec(stage.driver("mine"))
    held = Checkpoint.objects.filter(query__name__in=("delays", "alerts")).order_by("pk")
    assert told.checkpoints == tuple(held.values_list("location", flat=True))
    assert len(told.checkpoints) == 2
    assert told.folders == (f"{settings.CHECKPOINTS_DIR}/_mine",)


@pytest.mark.spark
@pytest.mark.django_db
def test_every_driver_has_what_a_first_checkpoint_that_is_not_local_needs() -> None:
    stage = Stage()
    stage.query("delays")
    stage.up("delays")
    given = driver_spec(stage.driver("delays"))
    assert given.without_classes == ""
    assert given.conf[FILE_MANAGER] == OUR_FILES
    assert "headgate/CheckpointFiles.class" in zipfile.ZipFile(given.jars[-1]).namelist()


@pytest.mark.django_db
@pytest.mark.usefixtures("no_java")
def test_a_driver_on_a_host_that_cannot_compile_our_classes_goes_without_them() -> None:
    stage = Stage()
    stage.query("delays")
    stage.up("delays")
    given = driver_spec(stage.driver("delays"))
    assert given.without_classes.startswith("Java cannot be started")
    assert (given.jars, FILE_MANAGER in given.conf) == ((), False)


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalProcessLauncher:
    """Return a launcher within walls whose drivers are never started: only made ready."""
    java = tmp_path / "java/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(HANGS)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("ours", "theirs", "later"):
        (secrets / name).write_text(f"{name}-password")
    made = LocalProcessLauncher(
        tmp_path / "drivers",
        tmp_path / "code",
        secrets_dir=secrets,
        isolation=lambda: choose(Mode.BUBBLEWRAP),
    )
    monkeypatch.setattr(made, "_spawn", lambda *_: None)
    return made


def _entry(tmp_path: Path, **spec: Any) -> AssignmentEntry:
    place = f"file://{tmp_path}/checkpoints/q1"
    return AssignmentEntry(1, "q1", 7, 7, spec, place, "", Want.RUN)


@pytest.mark.guarantee("G-ISOLATION-8")
def test_named_secrets_are_handed_over_and_no_others(
    launcher: LocalProcessLauncher, tmp_path: Path
) -> None:
    spec = replace(_spec(1), env={"PASSWORD": "file:ours", "GONE": "file:missing"})
    launcher.launch(spec, Assignment(1, 1), "")
    folder = DriverFolder.of(launcher.directory("flights", 1))
    told = DriverSpec.loads((folder.control / SPEC).read_text())
    assert told.walls == Mode.BUBBLEWRAP
    copies = Path(told.secrets_dir)
    assert copies.parent == folder.control
    assert {path.name: path.read_text() for path in copies.iterdir()} == {"ours": "ours-password"}
    more = _entry(tmp_path, sources=[{"options": {"kafka.password": "file:later"}}])
    launcher.assign("flights", Assignment(2, 1, (more,)))
    unbound = {"sources": [{"options": {"kafka.password": "file:theirs"}}]}
    refused = replace(more, run=8, spec=unbound, refused="file:theirs is not granted to flights")
    launcher.assign("flights", Assignment(3, 1, (more, refused)))
    assert sorted(path.name for path in copies.iterdir()) == ["later", "ours"]
    assert "password" not in json.dumps(told.env)


@pytest.mark.parametrize(
    ("task", "folders"),
    [
        (
            PreflightTask(
                "q", {}, "/c/op/scratch", 9, 9, 3, "file:///c/op/copy", "file:///c/a%20b"
            ),
            {"/c/op/scratch", "/c/op/copy", "/c/a b"},
        ),
        (PreflightTask("q", {}, "/c/op/scratch", 9, 9), {"/c/op/scratch"}),
        (XrayTask("file:///c/op", 9, 9), {"/c/op"}),
    ],
)
def test_a_probe_is_given_the_folders_of_its_task(
    tmp_path: Path, task: PreflightTask | XrayTask, folders: set[str]
) -> None:
    folder = DriverFolder.make(tmp_path / "drivers/app/probes/1")
    (folder.control / TASK).write_text(task.dumps())
    assert set(mounts.writable(_spec(1), folder)) == folders
