"""An archive of Spark's classes is named after all that it depends on, and none is required."""

import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from queries.launchers.base import NotMade
from queries.launchers.process import class_archives
from queries.launchers.process.class_archives import archive, existing, make, prune

#: Prints what a Java prints about itself.
JAVA = """#!/bin/sh
echo "    java.home = {home}" >&2
echo "    java.vm.version = {build}" >&2
"""


BASE = "java/lib/server/classes.jsa"


class Host:
    """A Java and a Spark of a test's own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "java"
        self.spark = folder / "spark"
        self.archives = folder / "classes"
        self.environ = {"JAVA_HOME": str(self.home), "SPARK_HOME": str(self.spark)}
        for name in ("java/bin/java", "java/lib/modules", BASE, "spark/jars/a.jar"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("x")
        self.build("17.0.1")

    def build(self, build: str) -> None:
        java = self.home / "bin/java"
        java.write_text(JAVA.format(home=self.home, build=build))
        java.chmod(0o755)

    def name(self) -> str:
        return archive(self.archives, self.environ).name


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def _another_java(host: Host) -> None:
    host.build("17.0.2 (a later one)")


def _another_jar(host: Host) -> None:
    (host.spark / "jars/b.jar").write_text("b")


def _a_changed_jar(host: Host) -> None:
    (host.spark / "jars/a.jar").write_text("changed")


def _changed_modules(host: Host) -> None:
    (host.home / "lib/modules").write_text("changed")


def _other_options(host: Host) -> None:
    host.environ["JDK_JAVA_OPTIONS"] = "-XX:+UseSerialGC"


def _another_place(host: Host) -> None:
    shutil.copytree(host.spark, host.spark.with_name("moved"))
    host.environ["SPARK_HOME"] = str(host.spark.with_name("moved"))


@pytest.mark.parametrize(
    "change",
    [
        _another_java,
        _another_jar,
        _a_changed_jar,
        _changed_modules,
        _other_options,
        _another_place,
    ],
)
def test_whatever_an_archive_depends_on_changes_its_name(
    host: Host, change: Callable[[Host], None]
) -> None:
    before = host.name()
    assert host.name() == before
    change(host)
    assert host.name() != before


def test_another_version_of_spark_has_an_archive_of_its_own(host: Host, tmp_path: Path) -> None:
    (tmp_path / "4.2/pyspark/jars").mkdir(parents=True)
    (tmp_path / "4.2/pyspark/jars/c.jar").write_text("c")
    other = archive(host.archives, host.environ, str(tmp_path / "4.2"))
    assert other.name != host.name()


def test_without_java_there_is_none_and_no_error(host: Host) -> None:
    environ = {"JAVA_HOME": str(host.home / "nothing")}
    with pytest.raises(NotMade, match="no Java"):
        archive(host.archives, environ)
    assert existing(host.archives, environ) is None


def test_a_java_that_fails_is_named(host: Host) -> None:
    (host.home / "bin/java").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(NotMade, match="bin/java is not responding"):
        host.name()


def test_a_java_without_an_archive_of_its_own_is_named(host: Host, tmp_path: Path) -> None:
    (tmp_path / BASE).unlink()
    with pytest.raises(NotMade, match=r"java has no archive of Java's own classes"):
        host.name()


def test_an_archive_is_used_once_it_exists_and_its_use_is_noted(host: Host) -> None:
    assert existing(host.archives, host.environ) is None
    path = host.archives / host.name()
    path.parent.mkdir()
    path.write_text("classes")
    assert existing(host.archives, host.environ) is None  # its size is not known
    path.with_suffix(".size").write_text("7")
    os.utime(path, (1, 1))
    assert existing(host.archives, host.environ) == path
    assert path.stat().st_mtime > 1


@pytest.mark.guarantee("G-START-3")
@pytest.mark.parametrize(("content", "size"), [("cla", "7"), ("", "7"), ("classes", "rotten")])
def test_one_that_is_incomplete_is_not_used(host: Host, content: str, size: str) -> None:
    path = host.archives / host.name()
    path.parent.mkdir()
    path.write_text(content)
    path.with_suffix(".size").write_text(size)
    assert existing(host.archives, host.environ) is None


def test_a_folder_that_cannot_be_used_is_named(host: Host) -> None:
    host.archives.write_text("a file is in the way")
    target = host.archives / "a.jsa"
    with pytest.raises(NotMade, match=r"The folder of class archives cannot be used: .*classes"):
        make(target, host.environ, "", threading.Event().wait)


def test_a_training_that_fails_says_why_and_leaves_nothing(host: Host) -> None:
    target = host.archives / "a.jsa"
    with pytest.raises(NotMade):
        make(target, {**host.environ, "PATH": os.environ["PATH"]}, "", threading.Event().wait)
    assert [path.name for path in host.archives.iterdir()] == [".making.lock"]
    assert stat.S_IMODE(host.archives.stat().st_mode) == 0o700


def test_a_worker_that_stops_ends_the_training(host: Host) -> None:
    with pytest.raises(NotMade, match="Headgate is stopping"):
        make(host.archives / "a.jsa", dict(os.environ), "", lambda _: True)
    assert not list(host.archives.glob(".training-*"))


def test_unused_archives_and_leftovers_are_removed(host: Host) -> None:
    now = time.time()
    host.archives.mkdir()
    for name, age in (("wanted", 9), ("used", 1), ("unused", 9)):
        path = host.archives / f"{name}.jsa"
        path.write_text(name)
        path.with_suffix(".size").write_text(str(len(name)))
        for made in (path, path.with_suffix(".size")):
            os.utime(made, (now - age, now - age))
    (host.archives / ".training-x").mkdir()
    for left in (host.archives / ".training-x", host.archives / "unused.draft"):
        left.touch()
        os.utime(left, (now - 9, now - 9))
    prune(host.archives, [host.archives / "wanted.jsa"], before=now - 5)
    assert sorted(path.name for path in host.archives.iterdir()) == [
        *("used.jsa", "used.size", "wanted.jsa", "wanted.size")
    ]
    assert class_archives.beside(host.archives.parent / "drivers") == host.archives
