"""Without our Java classes nothing starts on a checkpoint that is not local, and it says why."""

import threading
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from queries.domain.states import DriverKind, DriverState, Phase, Reason, RunOutcome
from queries.jvm import compiled
from queries.jvm.compiled import NotCompiled
from queries.launchers.base import LaunchRefused
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver
from queries.services.checkpoints.storage_jvms import NoStorage, storage_of
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

LIMIT_S = 60
REMOTE, LOCAL = "s3a://flights/checkpoints/{}", "file:///checkpoints/{}"


class Compiler:
    """The compiler of this host, and whether it works."""

    def __init__(self) -> None:
        self.works = False
        self.goes_on = threading.Event()
        self.goes_on.set()

    def compile(self, sources: list[Path], target: Path, java_home: str, jars: Path) -> None:
        """Write a class, or fail."""
        assert self.goes_on.wait(LIMIT_S)
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


@pytest.mark.guarantee("G-FENCE-4")
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


def test_a_query_on_a_local_disk_starts_without_them_once_they_could_not_be_compiled(
    stage: Stage, compiler: Compiler
) -> None:
    _query(stage, "delays", LOCAL)
    stage.start("delays")
    assert stage.row("delays").phase_reason == Reason.WAITS_CLASSES
    assert not Driver.objects.exists()
    _look(stage)
    stage.ready("delays")
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING


def test_a_driver_that_goes_without_them_has_them_compiled_for_the_next(
    stage: Stage, compiler: Compiler
) -> None:
    for name in ("failed", "without", "with"):
        _query(stage, name, LOCAL)
    stage.start("failed")
    _look(stage)
    stage.ready("failed")
    compiler.works = True
    stage.start("without")
    assert stage.launcher.spec("without").jars == ()
    compiled.wait(LIMIT_S)
    stage.start("with")
    assert len(stage.launcher.spec("with").jars) == 1


@pytest.mark.guarantee("G-FENCE-4")
def test_a_sweep_never_waits_for_the_compiler(stage: Stage, compiler: Compiler) -> None:
    compiler.goes_on.clear()
    _query(stage, "delays", LOCAL)
    stage.start("delays")
    stage.look()  # the compiler is at work until this test allows it to end
    row = stage.row("delays")
    assert row.phase_reason == Reason.WAITS_CLASSES
    assert "are being compiled on this host" in row.phase_detail.text
    compiler.works = True
    compiler.goes_on.set()
    _look(stage)
    stage.ready("delays")
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING


def test_a_driver_that_was_launched_without_them_is_replaced_once_it_has_refused_a_run(
    stage: Stage, compiler: Compiler
) -> None:
    _query(stage, "delays", LOCAL)
    stage.start("delays")
    _look(stage)
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


def test_a_storage_jvm_waits_for_the_compiler_and_is_refused_once_it_has_just_failed(
    stage: Stage, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = stage.application("lake")

    def reach() -> None:
        storage_of(lake, launcher=stage.launcher, now=stage.now)

    compiler.goes_on.clear()
    for _ in range(2):
        with pytest.raises(NoStorage, match="Java classes: they are still being compiled"):
            reach()
    compiler.goes_on.set()
    compiled.wait(LIMIT_S)
    monkeypatch.setattr(compiled, "RETRY_S", 3600)
    with pytest.raises(LaunchRefused, match=r"^The disk is full\.$"):
        reach()
    compiler.works = True
    compiler.goes_on.clear()
    monkeypatch.setattr(compiled, "RETRY_S", 0)  # half a minute later
    with pytest.raises(NoStorage, match="still being compiled"):
        reach()
    assert not Driver.objects.exists()
    compiler.goes_on.set()
    compiled.wait(LIMIT_S)
    with pytest.raises(NoStorage, match="The storage JVM is starting"):
        reach()
    assert Driver.objects.get().kind == DriverKind.STORAGE


def test_a_standby_waits_for_the_compiler_and_goes_without_them_once_it_has_failed(
    stage: Stage, compiler: Compiler, settings: Settings, tmp_path: Path
) -> None:
    settings.JARS_DIR = tmp_path / "at hand"
    compiler.works = True
    compiled.our_jar(settings.JARS_DIR)
    stage.application("flights", standby="own")
    _query(stage, "delays", LOCAL, "flights")
    stage.start("delays")
    stage.ready("flights")
    compiler.works = False
    compiler.goes_on.clear()
    settings.JARS_DIR = tmp_path / "jars"  # as after an update of Headgate beside it
    stage.commit("delays")
    standbys = Driver.objects.filter(kind=DriverKind.STANDBY)
    stage.wait(10)
    assert not standbys.exists()
    compiler.goes_on.set()
    compiled.wait(LIMIT_S)
    stage.wait(5)
    assert stage.launcher.spec("flights", epoch=standbys.get().epoch).jars == ()


def test_a_worker_that_has_started_again_keeps_a_standby_that_went_without_them(
    stage: Stage, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.application("flights", standby="own")
    _query(stage, "delays", LOCAL, "flights")
    stage.start("delays")
    _look(stage)
    stage.ready("flights")
    stage.commit("delays")
    stage.wait(5)
    standby = stage.standby("flights")
    stage.launcher.ready("flights", epoch=standby.epoch)
    stage.wait(2)
    compiler.goes_on.clear()
    monkeypatch.setattr(compiled, "_failed", {})
    stage.wait(5)
    assert stage.standby("flights").pk == standby.pk
    assert stage.standby("flights").end_wanted == ""
    stage.launcher.die("flights")
    stage.look("flights")
    assert stage.driver("flights").pk == standby.pk  # at once, while the compiler is at work
    compiler.goes_on.set()
    compiled.wait(LIMIT_S)


def test_a_driver_on_another_spark_has_the_classes_compiled_for_that_spark(
    stage: Stage, compiler: Compiler, settings: Settings, tmp_path: Path
) -> None:
    settings.SPARKS_DIR = tmp_path / "sparks"
    jars = settings.SPARKS_DIR / "4.1" / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "spark-core_2.13-4.1.4.jar").touch()
    compiler.works = True
    for application, spark in (("ours", "4.3"), ("older", "4.1")):
        stage.application(application, spark=spark)
        _query(stage, f"on-{application}", LOCAL, application)
        stage.start(f"on-{application}")
    _look(stage)
    found = [Path(jar).name for name in ("ours", "older") for jar in stage.launcher.spec(name).jars]
    assert found == [compiled.jar_name(), compiled.jar_name(jars)]
    assert len(set(found)) == 2
