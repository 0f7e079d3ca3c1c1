"""A real archive of Spark's classes: made, mapped by a driver, and ignored where it is broken."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from queries.domain.hosts import Mode
from queries.domain.protocol import DRIVER_LOG, RunState
from queries.launchers.process import class_archives, environment
from tests import pieces
from tests.spark.driver_under_test import DriverUnderTest, rate_query

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _java() -> Iterator[None]:
    """Start drivers without the options and the archive of the tests' own JVMs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(pieces.java().home))
        patch.delenv("JDK_JAVA_OPTIONS", raising=False)
        yield


def _environ() -> dict[str, str]:
    return environment.passed(os.environ, ())


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home") / "classes"
    target = class_archives.archive(folder, _environ(), pieces.spark())
    class_archives.make(target, _environ(), pieces.spark(), threading.Event().wait)
    return target


def _put(archive: Path, folder: Path) -> None:
    for path in (archive, archive.with_suffix(class_archives.SIZE)):
        os.link(path, folder / path.name)


def _maps(home: Path, archive: Path) -> DriverUnderTest:
    """Return a driver of a home that has the archive."""
    folder = home / class_archives.FOLDER
    folder.mkdir(mode=0o755)
    _put(archive, folder)
    return DriverUnderTest(home)


def _mapped(driver: DriverUnderTest) -> str:
    pid = driver.ident().jvm_pid
    return Path(f"/proc/{pid}/maps").read_text()


def test_it_is_complete_and_nothing_of_its_training_is_left(archive: Path) -> None:
    left = {path.name for path in archive.parent.iterdir()}
    assert left == {archive.name, archive.with_suffix(".size").name, ".making.lock"}
    assert archive.stat().st_mode & 0o444 == 0o444
    assert archive.stat().st_size > 50_000_000


def test_java_takes_sparks_classes_from_it(archive: Path) -> None:
    java = environment.java(_environ())
    jars = class_archives.jars(_environ(), pieces.spark())
    said = subprocess.run(
        [
            *(str(java), f"-XX:SharedArchiveFile={archive}", "-Xlog:class+load"),
            *("-cp", f"{jars.parent / 'conf'}:{_first(jars)}{jars}/*"),
            *("org.apache.spark.deploy.SparkSubmit", "--version"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    line = next(
        line for line in said.splitlines() if " org.apache.spark.deploy.SparkSubmit " in line
    )
    assert "source: shared objects file (top)" in line


def _first(jars: Path) -> str:
    """Return the jar that Spark's launcher puts before the others, since 4.0, and a colon."""
    return "" if pieces.spark_version() == "3.5" else f"{next(jars.glob('slf4j-api-*.jar'))}:"


def test_a_driver_maps_it_and_says_nothing_of_it(archive: Path, tmp_path: Path) -> None:
    driver = _maps(tmp_path, archive)
    try:
        driver.launch().ready()
        driver.start(10, rate_query(sql="SELECT value % 3, count(*) FROM numbers GROUP BY 1"))
        driver.wait_run(10, RunState.FAILED, RunState.RUNNING)
        assert str(tmp_path / "classes" / archive.name) in _mapped(driver)
        log = (driver.directory / "own" / DRIVER_LOG).read_text()
        assert "cds" not in log.lower()
        assert "rchive" not in log
        assert "ready; seconds: interpreter " in log
    finally:
        driver.end()


@pytest.mark.parametrize("broken", ["cut off", "overwritten", "of another Java"])
def test_a_broken_one_is_ignored(archive: Path, tmp_path: Path, broken: str) -> None:
    driver = _maps(tmp_path, archive)
    path = tmp_path / class_archives.FOLDER / archive.name
    path.unlink()
    shutil.copyfile(archive, path)
    with path.open("r+b") as file:
        if broken == "cut off":
            file.truncate(20_000_000)
        else:
            file.seek(50_000_000 if broken == "overwritten" else 40)
            file.write(b"rotten" * 10)
    try:
        driver.launch().ready()
        assert archive.name not in _mapped(driver)
    finally:
        driver.end()


@pytest.mark.walls
def test_within_walls_it_can_be_read_and_not_written(archive: Path, tmp_path: Path) -> None:
    folder = tmp_path / class_archives.FOLDER
    folder.mkdir(mode=0o755)
    _put(archive, folder)
    driver = DriverUnderTest(tmp_path, walls=Mode.BUBBLEWRAP)
    try:
        driver.launch().ready()
        pid = driver.ident().jvm_pid
        assert archive.name in _mapped(driver)
        mounts = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
        [mount] = [line for line in mounts if line.split()[4] == str(folder)]
        assert "ro" in mount.split()[5].split(",")
    finally:
        driver.end()
