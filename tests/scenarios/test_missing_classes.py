"""Without our Java classes nothing starts on a checkpoint that is not local, and it says why."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from queries.domain.states import DriverState, Phase, Reason, RunOutcome
from queries.jvm import compiled
from queries.jvm.compiled import NotCompiled
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

LIMIT_S = 60
REMOTE, LOCAL = "s3a://flights/checkpoints/{}", "file:///checkpoints/{}"


class Compiler:
    """The compiler of this host, and whether it works."""

    def __init__(self) -> None:
        self.works = False

    def compile(self, sources: list[Path], target: Path, java_home: str) -> None:
        """Write a class, or fail."""
        if not self.works:
            raise NotCompiled("The disk is full.")
        (target / "Fence.class").write_bytes(b"class")


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> Compiler:
    settings.JARS_DIR = tmp_path / "jars"
    compiler = Compiler()
    monkeypatch.setattr(compiled, "_compile", compiler.compile)
    monkeypatch.setattr(compiled, "RETRY_S", 0)
    return compiler


def _look(stage: Stage) -> None:
    """Wait until the compiler is done, then look again."""
    compiled.wait(LIMIT_S)
    stage.wait(2)
    compiled.wait(LIMIT_S)


def _query(stage: Stage, name: str, place: str = REMOTE, application: str = "") -> None:
    stage.query(name, application)
    Checkpoint.objects.filter(query__name=name).update(location=place.format(name))


def test_a_query_on_s3_waits_until_they_are_compiled(stage: Stage, compiler: Compiler) -> None:
    _query(stage, "delays")
    stage.start("delays")
    _look(stage)
    row = stage.row("delays")
    assert (row.phase, row.phase_reason) == (Phase.PENDING, Reason.WAITS_CLASSES)
    assert "this host does not have them: The disk is full." in row.phase_detail.text
    assert not Driver.objects.exists()
    compiler.works = True
    _look(stage)
    _look(stage)
    stage.ready("delays")
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING


def test_a_query_on_a_local_disk_starts_without_them(stage: Stage, compiler: Compiler) -> None:
    _query(stage, "delays", LOCAL)
    stage.up("delays")
    assert stage.phase("delays") == Phase.RUNNING


def test_a_driver_that_was_launched_without_them_is_replaced_once_it_has_refused_a_run(
    stage: Stage, compiler: Compiler
) -> None:
    _query(stage, "delays", LOCAL)
    stage.start("delays")
    stage.ready("delays")
    first = stage.driver("delays")
    Checkpoint.objects.update(location=REMOTE.format("delays"))
    status = stage.launcher.sight("delays", first.epoch).status
    assert status is not None
    stage.launcher.refuse(stage.run("delays").pk, "own", holder_pid=status.jvm_pid)
    stage.look()
    assert stage.last_run("delays").outcome == RunOutcome.REFUSED
    stage.launcher.leave("delays", epoch=first.epoch)
    _look(stage)
    first.refresh_from_db()
    assert (first.state, first.end_wanted) == (DriverState.ENDED, Reason.REPLACED)
    assert stage.row("delays").phase_reason == Reason.WAITS_CLASSES
    compiler.works = True
    _look(stage)
    _look(stage)
    assert stage.driver("delays").epoch > first.epoch
